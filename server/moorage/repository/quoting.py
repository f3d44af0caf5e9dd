"""Foreign text in messages: escaped to printable ASCII and cut, so that it can't forge or flood a log line."""

import reprlib

_SHOWN_CHARACTERS = 80

_short = reprlib.Repr()
_short.maxstring = _SHOWN_CHARACTERS
_short.maxother = _SHOWN_CHARACTERS
_short.maxlong = _SHOWN_CHARACTERS


def shown(value: object) -> str:
    """Python's notation of a value, in ASCII, shortened in the middle where it is long."""
    try:
        text = _short.repr(value)
    except ValueError:  # Python refuses to write an int of thousands of digits in decimal
        text = f"an {type(value).__name__} too large to show"
    return text.encode("ascii", "backslashreplace").decode("ascii")
