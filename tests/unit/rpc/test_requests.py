"""Requests as a whole: which inputs and outputs, rows, names, deadlines, and how the bytes are taken apart."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from moorage.domain.errors import NotSupported
from moorage.domain.model import BatchingPolicy, QueuePolicy
from moorage.domain.tensor import TensorSpec
from moorage.rpc.codec import Call
from moorage.rpc.contents import CHUNK_ELEMENTS, pack_elements
from moorage_protocol import inference as pb
from tests.unit.rpc.echo_backend import echo_spec
from tests.unit.rpc.messages import CALL, decode, decode_async, raw_request, refusal, typed_request
from tests.unit.rpc.running import on_loop

FLAT = echo_spec("echo", TensorSpec("x", "FP32", [-1]))
TEXT = echo_spec("echo", TensorSpec("x", "BYTES", [-1]))
PAIR = echo_spec("echo", TensorSpec("a", "FP32", [2]), TensorSpec("b", "INT64", [-1], optional=True))
BATCHED = echo_spec("echo", TensorSpec("a", "FP32", [2]), TensorSpec("b", "INT64", [-1]), max_batch_size=4)


GOOD_A = ("a", "FP32", [2], bytes(8))
GOOD_B = ("b", "INT64", [1], bytes(8))


def test_inputs_come_in_the_model_s_order_and_optional_ones_may_be_missing() -> None:
    both, _ = decode(PAIR, raw_request("echo", GOOD_B, GOOD_A))
    assert [tensor.name for tensor in both.inputs] == ["a", "b"]
    one, _ = decode(PAIR, raw_request("echo", GOOD_A))
    assert [tensor.name for tensor in one.inputs] == ["a"]


def test_missing_unknown_and_repeated_inputs() -> None:
    assert refusal(PAIR, raw_request("echo", GOOD_B)).startswith("input 'a'")
    assert "input 'b'" in refusal(BATCHED, raw_request("echo", ("a", "FP32", [1, 2], bytes(8))))
    assert refusal(PAIR, raw_request("echo", GOOD_A, GOOD_A)).startswith("input 'a': expected each input once")
    assert "one of the model's inputs: 'a', 'b'" in refusal(PAIR, raw_request("echo", GOOD_A, ("c", "FP32", [], b"")))
    assert "datatype: expected FP32, got 'FP99'" in refusal(PAIR, raw_request("echo", ("a", "FP99", [2], bytes(8))))
    assert refusal(PAIR, pb.ModelInferRequest(model_name="echo")).startswith("input 'a'")


def test_raw_entries_must_match_the_inputs() -> None:
    request = raw_request("echo", GOOD_A, GOOD_B)
    del request.raw_input_contents[1]
    assert "expected 2 entries, one for each input ('a', 'b'), got 1" in refusal(PAIR, request)
    request = raw_request("echo", GOOD_A)
    request.raw_input_contents.append(b"")
    assert "expected 1 entries, one for each input ('a'), got 2" in refusal(PAIR, request)


def test_raw_and_typed_do_not_mix() -> None:
    request = raw_request("echo", GOOD_A)
    request.inputs[0].contents.fp32_contents.extend([1, 2])
    assert "either typed contents or raw_input_contents" in refusal(PAIR, request)
    request = typed_request("echo", ("a", "FP32", [2], {"fp32_contents": [1, 2]}), ("b", "INT64", [1], None))
    request.raw_input_contents.append(bytes(8))
    assert "expected 2 entries" in refusal(PAIR, request)


def batched(rows_a: int, rows_b: int, width: int = 3, **fields: Any) -> pb.ModelInferRequest:
    return raw_request(
        "echo",
        ("a", "FP32", [rows_a, 2], bytes(8 * max(rows_a, 0))),
        ("b", "INT64", [rows_b, width], bytes(8 * width * max(rows_b, 0))),
        **fields,
    )


def test_rows() -> None:
    request, _ = decode(BATCHED, batched(3, 3))
    assert request.rows == 3
    unbatched, _ = decode(PAIR, raw_request("echo", GOOD_A))
    assert (unbatched.rows, unbatched.batch_key) == (1, None)
    for rows in (0, 5, -1):
        assert "input 'a' shape: expected [-1,2] with 1 to 4 rows" in refusal(BATCHED, batched(rows, rows))
    hint = "with 1 to 4 rows (more where its model.toml says batching.split_requests = true), got [5,2]"
    assert hint in refusal(BATCHED, batched(5, 5))
    assert "split_requests" not in refusal(BATCHED, batched(0, 0))
    assert "input 'b' shape: expected 2 rows, as input 'a' has, got 3 rows" in refusal(BATCHED, batched(2, 3))


def test_a_model_that_splits_takes_as_many_rows_as_may_wait() -> None:
    splitting = replace(BATCHED, batching=BatchingPolicy(split_requests=True), queue=QueuePolicy(max_rows=9))
    request, _ = decode(splitting, batched(9, 9))
    assert request.rows == 9
    message = refusal(splitting, batched(10, 10))
    assert message == "input 'a' shape: expected [-1,2] with 1 to 9 rows, got [10,2]"
    roomy = replace(splitting, queue=QueuePolicy(max_rows=2))
    assert decode(roomy, batched(4, 4))[0].rows == 4


@pytest.mark.parametrize("typed", [False, True])
def test_where_rows_of_strings_end_is_known_where_they_may_be_split(typed: bool) -> None:
    texts = [b"", b"a", b"bc", b"def", b"", b""]
    words = echo_spec("echo", TensorSpec("x", "BYTES", [2]), max_batch_size=2)
    splitting = replace(words, batching=BatchingPolicy(split_requests=True))
    message = raw_request("echo", ("x", "BYTES", [3, 2], pack_elements(texts)))
    if typed:
        message = typed_request("echo", ("x", "BYTES", [3, 2], {"bytes_contents": texts}))
    request, _ = decode(splitting, message)
    assert request.inputs[0].row_ends == (4 + 5, 9 + 6 + 7, 22 + 8)
    nothing, _ = decode(
        replace(splitting, inputs=(TensorSpec("x", "BYTES", [-1]),)), raw_request("echo", ("x", "BYTES", [3, 0], b""))
    )
    assert nothing.inputs[0].row_ends == (0, 0, 0)
    once, _ = decode(words, raw_request("echo", ("x", "BYTES", [2, 2], pack_elements(texts[:4]))))
    assert once.inputs[0].row_ends == ()


@on_loop
async def test_long_rows_of_strings_are_read_without_holding_others_up() -> None:
    each = 3 * CHUNK_ELEMENTS
    spec = replace(
        echo_spec("echo", TensorSpec("x", "BYTES", [-1]), max_batch_size=1),
        batching=BatchingPolicy(split_requests=True),
    )
    message = raw_request("echo", ("x", "BYTES", [4, each], bytes(4 * 4 * each)))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    request, _ = await decode_async(spec, message)
    beside.cancel()
    assert request.inputs[0].row_ends == tuple(4 * each * row for row in (1, 2, 3, 4))
    assert turns >= 2 * 11, "a turn after every chunk but the last, to check the elements and to find the rows"


def key_of(request: pb.ModelInferRequest) -> Any:
    return decode(BATCHED, request)[0].batch_key


def test_batch_key() -> None:
    assert key_of(batched(1, 1)) == key_of(batched(3, 3))
    assert key_of(batched(1, 1)) != key_of(batched(1, 1, width=4))
    one = {"k": pb.InferParameter(int64_param=1)}
    true = {"k": pb.InferParameter(bool_param=True)}
    assert key_of(batched(1, 1, parameters=one)) == key_of(batched(2, 2, parameters=one))
    assert len({key_of(batched(1, 1, parameters=given)) for given in ({}, one, true)}) == 3


@pytest.mark.parametrize(("named", "keys"), [((), 3), (("tenant",), 2), (("*",), 1)])
def test_parameters_that_may_differ_within_a_run(named: tuple[str, ...], keys: int) -> None:
    spec = replace(BATCHED, batching=BatchingPolicy(per_request_parameters=frozenset(named)))
    given = ({"tenant": "a"}, {"tenant": "b"}, {"tenant": "b", "scale": "2"})
    found = []
    for each in given:
        parameters = {name: pb.InferParameter(string_param=value) for name, value in each.items()}
        request, _ = decode(spec, batched(1, 1, parameters=parameters))
        assert request.parameters == each, "all are handed on"
        found.append(request.batch_key)
    assert len(set(found)) == keys


def varying(rows: int, *dimensions: int, with_b: bool = False) -> pb.ModelInferRequest:
    """An `a` of rows x dimensions[0] x 3 x dimensions[1], a `c`, and where asked for a `b` of rows x dimensions[2]."""
    elements = rows * dimensions[0] * 3 * dimensions[1]
    a = ("a", "INT16", [rows, dimensions[0], 3, dimensions[1]], bytes(2 * elements))
    c = ("c", "UINT8", [rows, 2], bytes(2 * rows))
    b = [("b", "INT64", [rows, dimensions[2]], bytes(8 * rows * dimensions[2]))] if with_b else []
    return raw_request("echo", a, c, *b)


def test_requests_that_differ_only_where_they_may_share_a_run() -> None:
    spec = echo_spec(
        "echo",
        TensorSpec("a", "INT16", [-1, 3, -1], ragged=True),
        TensorSpec("b", "INT64", [-1], optional=True, padding=0),
        TensorSpec("c", "UINT8", [-1]),
        max_batch_size=4,
    )
    requests = [decode(spec, varying(*given, with_b=True))[0] for given in ((1, 5, 2, 7), (2, 0, 1, 0), (4, 5, 2, 7))]
    assert len({request.batch_key for request in requests}) == 1
    assert [request.padded for request in requests] == [((8, 7),), ((8, 0),), ((8, 7),)]
    without, _ = decode(spec, varying(1, 5, 2))
    assert without.padded == ()
    assert without.batch_key not in {request.batch_key for request in requests}
    wider = varying(1, 5, 2, 7, with_b=True)
    wider.inputs[1].shape[1], wider.raw_input_contents[1] = 3, bytes(3)
    assert decode(spec, wider)[0].batch_key != requests[0].batch_key


def test_what_does_not_vary_is_checked_as_ever() -> None:
    spec = echo_spec("echo", TensorSpec("x", "FP32", [-1, 3], padding=0.0), max_batch_size=4)
    for shape in ([1, 5], [1, 5, 4], [5, 1, 3], [1, -1, 3]):
        told = refusal(spec, raw_request("echo", ("x", "FP32", shape, b"")))
        assert "input 'x' shape: expected [-1,-1,3] with 1 to 4 rows" in told
    assert "expected FP32" in refusal(spec, raw_request("echo", ("x", "FP64", [1, 1, 3], bytes(24))))


def test_requested_outputs() -> None:
    def asking(*outputs: dict[str, Any]) -> pb.ModelInferRequest:
        return raw_request("echo", GOOD_A, GOOD_B, outputs=outputs)

    request, _ = decode(PAIR, asking({"name": "b"}, {"name": "a"}))
    assert request.outputs == ("b", "a")
    assert "output 'z'" in refusal(PAIR, asking({"name": "z"}))
    assert "output 'a': expected each output once" in refusal(PAIR, asking({"name": "a"}, {"name": "a"}))
    for key in ("classification", "shared_memory_region"):
        with pytest.raises(NotSupported, match=r"output 'a'.*" + key.partition("_")[0]):
            decode(PAIR, asking({"name": "a", "parameters": {key: pb.InferParameter(int64_param=1)}}))


def test_inputs_in_shared_memory_are_not_supported() -> None:
    request = raw_request("echo", GOOD_A)
    request.inputs[0].parameters["shared_memory_region"].string_param = "region"
    with pytest.raises(NotSupported, match=r"input 'a'.*shared-memory"):
        decode(PAIR, request)


@pytest.mark.parametrize("name", ["", ".", "../echo", "a/../../etc", "/etc", "%2e%2e/x", "a\\b", "a\0b", "x" * 300])
def test_impossible_names_are_refused_before_anything_is_looked_up(name: str) -> None:
    request = raw_request("echo", GOOD_A)
    request.model_name = name
    message = refusal(PAIR, request)
    assert message.startswith("model_name")
    assert message.isprintable()


@pytest.mark.parametrize("version", ["../1", "-1", "1e3", "01"])
def test_impossible_versions(version: str) -> None:
    request = raw_request("echo", GOOD_A, model_version=version)
    assert refusal(PAIR, request).startswith("model_version")


def test_what_does_not_parse() -> None:
    assert "a serialized inference.ModelInferRequest" in refusal(PAIR, b"\xff\xff\xff")
    assert "a serialized inference.ModelInferRequest" in refusal(PAIR, b"\x3a\xff\xff\xff\x7f" + bytes(20_000))


def test_foreign_text_is_escaped_and_cut() -> None:
    message = refusal(PAIR, raw_request("echo", ("\n\x1b[31m\u202e" + "x" * 5000, "FP32", [2], bytes(8))))
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 300


def test_large_raw_contents_are_views_into_the_message() -> None:
    data = bytes(range(256)) * 400
    request, _ = decode(FLAT, raw_request("echo", ("x", "FP32", [25_600], data), id="7"))
    assert isinstance(request.inputs[0].data, memoryview)
    assert request.inputs[0].data == data
    assert request.client_id == "7"


def test_fields_in_an_unusual_order_and_unknown_ones() -> None:
    data = bytes(40_000)
    tensor = pb.ModelInferRequest(raw_input_contents=[data]).SerializeToString()
    rest = raw_request("echo", ("x", "FP32", [10_000], b""))
    del rest.raw_input_contents[:]
    unknown = b"\x98\x06\x01"  # field 99
    for body in (tensor + rest.SerializeToString(), tensor + unknown + rest.SerializeToString()):
        request, _ = decode(FLAT, body)
        assert request.inputs[0].data == data


@pytest.mark.parametrize(
    ("timeout", "remaining_s", "patience_s"),
    [(None, None, 30.0), (None, 5.0, 5.0), (None, 500.0, 500.0), (2_000_000, 5.0, 2.0), (2_000_000, 1.0, 1.0),
     (90_000_000, None, 90.0)],
)  # fmt: skip
def test_deadline(timeout: int | None, remaining_s: float | None, patience_s: float) -> None:
    given = {} if timeout is None else {"timeout": pb.InferParameter(int64_param=timeout)}
    message = raw_request("echo", GOOD_A, parameters=given)
    request, _ = decode(PAIR, message, Call(100.0, remaining_s, ()))
    assert request.arrived_s == CALL.arrived_s
    assert request.deadline_s == pytest.approx(CALL.arrived_s + patience_s)


@on_loop
async def test_large_contents_give_way_to_other_work() -> None:
    count = 60_000
    cases = [
        (TEXT, raw_request("echo", ("x", "BYTES", [count], bytes(4 * count)))),
        (TEXT, typed_request("echo", ("x", "BYTES", [count], {"bytes_contents": [b"ab"] * count}))),
        (FLAT, typed_request("echo", ("x", "FP32", [count], {"fp32_contents": [0.25] * count}))),
    ]
    for spec, message in cases:
        turns = 0
        decoding = asyncio.ensure_future(decode_async(spec, message))
        while not decoding.done():
            turns += 1
            await asyncio.sleep(0)
        request, _ = decoding.result()
        assert turns >= count // CHUNK_ELEMENTS
        assert request.size_bytes > 4 * count
