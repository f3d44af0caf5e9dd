from collections.abc import Mapping

import numpy as np
import pytest

from moorage.cli.arrays import InputError
from moorage.cli.inputs import Sources
from moorage.cli.samples import samples_of, with_rows
from moorage.domain.model import WarmupInput, WarmupRun
from moorage.domain.tensor import Datatype
from moorage_client import BFloat16, ModelMetadata, TensorMetadata
from tests.support.scheduling import make_spec

NOTHING = Sources((), {}, {})
BATCHED, UNBATCHED = make_spec(), make_spec(max_batch_size=0)


def model(*inputs: TensorMetadata) -> ModelMetadata:
    return ModelMetadata("m", ("1",), "moorage_python", inputs, ())


FIXED = TensorMetadata("x", "FP32", (-1, 4))
FREE = TensorMetadata("audio", "INT16", (-1, -1))
TEXT = TensorMetadata("text", "BYTES", (-1, 1))


def test_what_is_not_given_is_zeros_of_the_declared_shape() -> None:
    (sample,) = samples_of(model(FIXED, FREE), NOTHING, {"audio": (7,)}, BATCHED)
    request = with_rows(sample, 3)
    assert {name: (np.asarray(tensor).shape, np.asarray(tensor).dtype) for name, tensor in request.items()} == {
        "x": ((3, 4), np.dtype(np.float32)),
        "audio": ((3, 7), np.dtype(np.int16)),
    }


def test_each_text_is_a_sample_of_its_own_and_rows_are_repeated() -> None:
    samples = samples_of(model(TEXT), Sources(("one", "two words"), {}, {}), {}, BATCHED)
    assert [np.asarray(with_rows(sample, 2)["text"]).tolist() for sample in samples] == [
        [[b"one"], [b"one"]],
        [[b"two words"], [b"two words"]],
    ]


def test_rows_that_were_given_come_in_turn() -> None:
    given = {"x": np.arange(8, dtype=np.float32).reshape(2, 4)}
    (sample,) = samples_of(model(FIXED), Sources((), {}, given), {}, BATCHED)
    assert np.asarray(with_rows(sample, 3)["x"])[:, 0].tolist() == [0.0, 4.0, 0.0]


def test_bfloat16_has_rows_too() -> None:
    (sample,) = samples_of(model(TensorMetadata("x", "BF16", (-1, 2))), NOTHING, {}, BATCHED)
    tensor = with_rows(sample, 5)["x"]
    assert isinstance(tensor, BFloat16)
    assert tensor.bits.shape == (5, 2)


def test_without_a_batch_axis_the_whole_shape_is_the_models() -> None:
    (sample,) = samples_of(model(TensorMetadata("x", "FP64", (3, 2))), NOTHING, {}, UNBATCHED)
    assert np.asarray(sample["x"]).shape == (3, 2)


@pytest.mark.parametrize(
    ("inputs", "shapes", "says"),
    [
        (FREE, {}, r"input 'audio' has the shape \[-1\]: give --shape audio=SIZE"),
        (FREE, {"audio": (2, 3)}, r"--shape audio: expected \[-1\], got \[2, 3\]"),
        (FIXED, {"x": (5,)}, r"--shape x: expected \[4\], got \[5\]"),
        (FIXED, {"y": (4,)}, "--shape: model 'm' has no input 'y'"),
        (TEXT, {}, "input 'text' takes texts: give --text"),
    ],
)
def test_what_can_not_be_made_is_named(
    inputs: TensorMetadata, shapes: Mapping[str, tuple[int, ...]], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        samples_of(model(inputs), NOTHING, shapes, BATCHED)


def test_what_a_warm_up_gives_stands_in_for_what_was_not_given() -> None:
    audio = WarmupInput("audio", Datatype.INT16, (5,))
    text = WarmupInput("text", Datatype.BYTES, (1,), values=("warm",))
    spec = make_spec(warmup=(WarmupRun(inputs=(audio, text)),))
    (sample,) = samples_of(model(FREE, TEXT), NOTHING, {}, spec)
    assert np.asarray(sample["audio"]).shape == (1, 5)
    assert np.asarray(sample["text"]).tolist() == [[b"warm"]]
    (other,) = samples_of(model(FREE, TEXT), Sources(("cold",), {}, {}), {"audio": (7,)}, spec)
    assert np.asarray(other["audio"]).shape == (1, 7)
    assert np.asarray(other["text"]).tolist() == [[b"cold"]]
