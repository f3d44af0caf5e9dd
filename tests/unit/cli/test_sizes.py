import pytest
import typer

from moorage.cli.sizes import parse_size
from moorage.repository.quantities import parse_bytes

GOOD = ["0", "7", "1048576", "1 B", "2KiB", "2 kb", "1.5GiB", "90 MiB", "0.1 MB", " 3tib "]


@pytest.mark.parametrize("text", GOOD)
def test_sizes_mean_what_they_mean_in_model_toml(text: str) -> None:
    assert parse_size("--size", text) == parse_bytes(text)


@pytest.mark.parametrize("text", ["", "much", "1,5 GiB", "-1", "1e9", "2 XiB", "2 iB", "1.", "\u0661", "2 GiB more"])
def test_anything_else_is_wrong_usage(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught:
        parse_size("--size", text)
    assert caught.value.exit_code == 2
    assert "--size: expected a size" in capsys.readouterr().err
    with pytest.raises(ValueError, match="expected"):
        parse_bytes(text)
