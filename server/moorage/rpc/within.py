"""Numbers that have bounds."""

from moorage.domain.errors import InvalidRequest


def within(field: str, number: int, least: int, most: int, *, zero: str = "") -> int:
    """The number. Raises InvalidRequest where it is out of range; zero: what 0 stands for besides."""
    if not least <= number <= most:
        also = f", or 0 {zero}" if zero else ""
        raise InvalidRequest(field, expected=f"a whole number from {least} to {most}{also}", got=str(number))
    return number
