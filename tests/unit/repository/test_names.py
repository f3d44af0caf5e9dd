import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.domain.errors import InvalidRequest
from moorage.repository.names import MAX_VERSION, check_model_name, is_model_name, parse_version
from moorage.repository.quoting import shown

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")

# Case B37: client text that must never become a path.
HOSTILE_NAMES = [
    "../echo",
    "a/../../etc",
    "/etc/passwd",
    "%2e%2e/x",
    "..\\echo",
    "a\\b",
    "echo\0",
    "ec\0ho",
    "",
    ".",
    "..",
    "a..b",
    "x" * 300,
    "\u0435cho",  # Cyrillic e
    "ｅcho",  # noqa: RUF001 - full-width e, as a client may send it
    "echo\n",
    " echo",
    "-echo",
    ".echo",
    "\ud800",
]
HOSTILE_VERSIONS = ["../1", "-1", "1e3", "+1", "01", "0", " 1", "1 ", "1\n", "1.0", "1_0", "\u0661"]
HOSTILE_VERSIONS += [str(2**31 + 1), "9" * 5000]


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
def test_hostile_name_is_refused_in_printable_text(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_model_name(name, field="name")
    assert caught.value.field == "name"
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("name", ["echo", "a", "_", "1", "all-MiniLM-L6-v2", "v1.5", "x" * 128])
def test_plain_name_passes_unchanged(name: str) -> None:
    assert check_model_name(name) == name


@given(st.one_of(st.text(), st.from_regex(PLAIN_NAME), st.text("abc./\\-_%0")))
def test_any_text_is_a_plain_name_or_an_invalid_request(name: str) -> None:
    plain = PLAIN_NAME.match(name) is not None and ".." not in name
    assert is_model_name(name) == plain
    if plain:
        assert check_model_name(name) == name
        assert Path("root", name).parent == Path("root")
        assert Path("root", name).name == name
    else:
        with pytest.raises(InvalidRequest):
            check_model_name(name)


@pytest.mark.parametrize("text", HOSTILE_VERSIONS, ids=lambda text: ascii(text[:20]))
def test_hostile_version_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_version(text, field="version")
    assert caught.value.field == "version"
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 300


@given(st.integers(min_value=1, max_value=MAX_VERSION))
def test_version_in_its_one_spelling_is_read(version: int) -> None:
    assert parse_version(str(version)) == version


def test_no_version_is_the_latest() -> None:
    assert parse_version("") is None


@given(st.text())
def test_any_text_is_a_version_or_an_invalid_request(text: str) -> None:
    try:
        version = parse_version(text)
    except InvalidRequest:
        return
    assert text == ("" if version is None else str(version))


@given(st.recursive(st.one_of(st.text(), st.binary(), st.integers(), st.none()), st.lists))
def test_shown_is_short_printable_ascii(value: object) -> None:
    assert shown(value).isascii()
    assert shown(value).isprintable()


def test_shown_survives_an_integer_too_long_for_decimal() -> None:
    assert shown(16**9000) == "an int too large to show"
