from typing import Any

import pytest

from moorage.domain.errors import InvalidRequest, NotSupported
from moorage.rpc.parameters import Metadata, Options, read_options
from moorage_protocol import inference as pb


def options(metadata: Metadata = (), /, **parameters: dict[str, Any]) -> Options:
    return read_options({key: pb.InferParameter(**value) for key, value in parameters.items()}, metadata)


@pytest.mark.parametrize("value", [{"int64_param": 2}, {"uint64_param": 2}, {"string_param": "2"}])
def test_priority_in_all_its_spellings(value: dict[str, Any]) -> None:
    assert options(priority=value).priority == 2


@pytest.mark.parametrize(
    "value",
    [{"int64_param": 6}, {"int64_param": -1}, {"uint64_param": 2**64 - 1}, {"string_param": ""}, {"string_param": "+1"},
     {"string_param": "\u0663"}, {"string_param": "1" * 5000}, {"bool_param": True}, {"double_param": 1.0}, {}],
)  # fmt: skip
def test_priorities_that_are_none(value: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="priority"):
        options(priority=value)


def test_timeout_is_in_microseconds() -> None:
    assert options(timeout={"int64_param": 1_500_000}).timeout_s == 1.5
    assert options(timeout={"string_param": "250"}).timeout_s == 0.00025
    for value in ({"int64_param": 0}, {"int64_param": -5}, {"string_param": "1s"}, {"double_param": 5.0}):
        with pytest.raises(InvalidRequest, match="timeout"):
            options(timeout=value)


def test_metadata_counts_where_no_parameter_does() -> None:
    metadata = (("user-agent", "x"), ("priority", "4"), ("timeout", "1000000"), ("moorage_tenant", "a"), ("other", "b"))
    assert options(metadata) == Options(4, 1.0, {"moorage_tenant": "a"})
    assert options(metadata, priority={"int64_param": 1}).priority == 1
    assert options((("moorage_x-bin", b"\x00"),)) == Options()
    with pytest.raises(InvalidRequest, match="priority"):
        options((("priority", "urgent"),))


def test_custom_parameters_reach_the_model_as_plain_values() -> None:
    given = options(
        a={"bool_param": True}, b={"int64_param": -1}, c={"string_param": "s"}, d={"double_param": 0.5},
        e={"uint64_param": 2**63},
    )  # fmt: skip
    assert given.custom == {"a": True, "b": -1, "c": "s", "d": 0.5, "e": 2**63}


def test_reserved_names() -> None:
    assert options(triton_enable_empty_final_response={"bool_param": True}) == Options(empty_final=True)
    assert options(triton_enable_empty_final_response={"bool_param": False}) == Options()
    for key in ("triton_anything", "headers"):
        with pytest.raises(InvalidRequest, match=f"'{key}'.*reserved"):
            options(**{key: {"bool_param": True}})
    for key in ("sequence_id", "sequence_start", "sequence_end"):
        with pytest.raises(NotSupported, match="sequence"):
            options(**{key: {"int64_param": 1}})


def test_their_number_is_bounded() -> None:
    with pytest.raises(InvalidRequest, match="parameters: expected at most 256, got 257"):
        options(**{f"p{number}": {"int64_param": 1} for number in range(257)})
