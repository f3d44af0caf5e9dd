"""When a worker that died is started again."""

# A worker that has stayed up this long is well: its earlier crashes are forgotten.
STABLE_AFTER_S = 60.0
FIRST_DELAY_S = 0.5
MAX_DELAY_S = 30.0
# From this many crashes in a row on, waiting work is answered rather than kept: the wait is no longer short.
UNWELL_AFTER = 4


def crashes_in_a_row(before: int, up_for_s: float) -> int:
    """The count after one more crash of a worker that had been up that long."""
    return 1 if up_for_s >= STABLE_AFTER_S else before + 1


def restart_delay_s(crashes: int) -> float:
    """Seconds until the next start: the first is immediate, then doubling up to a ceiling."""
    if crashes <= 1:
        return 0.0
    return min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** min(crashes - 2, 16))
