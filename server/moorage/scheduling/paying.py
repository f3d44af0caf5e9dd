"""How many rows of a run pay: with more of them a row takes no less, and all wait for the last.

Most models take less for each row of a larger run, up to their largest. Not all: on a CPU a run of 32 rows may take as
long as 32 of one, or longer, since what it keeps of so many fits no cache any more, or since the shorter ones are
computed as long as the longest.
"""

from moorage.scheduling.estimates import RunSeconds

# What a run costs beside what is measured of it: its messages, and the decision.
_PER_RUN_S = 1e-3
# A smaller run is taken where a row in it takes no more than so many times the least.
_MUCH_THE_SAME = 1.03
# A size that was not seen is tried where lines through others foretell no more than this; one that is larger than all
# that were seen, where they foretell no more than that: they know the least there.
_WORTH_A_TRY = 1.10
_LARGER_IS_WORTH_A_TRY = 1.25
# One that has not run for a while may be otherwise by now. A larger one is tried now and then in any case: nothing else
# would show that the few runs of it that were seen had been held up. A smaller one where it took no more than this.
_MAY_HAVE_CHANGED = 1.15
# In runs: how many are looked at each; of later ones every how many; and how often another size is tried.
_FIRST_RUNS = 32
_LOOK_EVERY = 8
_TRY_EVERY = 64


class PayingRows:
    """Of one model, learned from its runs."""

    __slots__ = ("_at_hand", "_most_rows", "_ran", "rows")

    def __init__(self, most_rows: int) -> None:
        """most_rows: of any run."""
        self._most_rows = most_rows
        self._ran = self._at_hand = 0
        self.rows = most_rows
        """The most of the next run."""

    def ran(self, seconds: RunSeconds, at_hand: int) -> None:
        """A run has ended, which `seconds` knows of. Every so many, look again.

        at_hand: rows that it had, and that wait.
        """
        self._ran += 1
        self._at_hand = max(self._at_hand, at_hand)
        since_try = self._ran % _TRY_EVERY
        if since_try == 0:
            self.rows = self._other_rows(seconds)
        elif since_try == 1 or self._ran <= _FIRST_RUNS or self._ran % _LOOK_EVERY == 0:
            self.look(seconds)

    def look(self, seconds: RunSeconds) -> None:
        """Go by what is known now."""
        self.rows = paying_rows(seconds, self._most_rows, self._at_hand)
        self._at_hand = 0

    def _other_rows(self, seconds: RunSeconds) -> int:
        """Of the next run alone: twice as many and, where that may pay by now, half of them, in turn."""
        if self._ran // _TRY_EVERY % 2:
            return min(self._most_rows, 2 * self.rows)
        half = max(1, self.rows // 2)
        may_pay = _row_s(seconds, half) <= _MAY_HAVE_CHANGED * _row_s(seconds, self.rows)
        return half if may_pay else self.rows


def paying_rows(seconds: RunSeconds, most_rows: int, at_hand: int) -> int:
    """The fewest rows of a run with which a row takes hardly more than with any other number, as far as is known; or,
    for a try, a number that was not seen. most_rows, where too little is known.

    at_hand: so many there might be.
    """
    sizes = [1 << power for power in range(most_rows.bit_length()) if 1 << power < most_rows] + [most_rows]
    known = {rows: _row_s(seconds, rows) for rows in sizes if seconds.is_known_of_any(rows)}
    if len(known) < 2:
        return most_rows
    least_s = min(known.values())
    fewest, most = min(known), max(known)
    untried = {
        rows: _row_s(seconds, rows) / (_WORTH_A_TRY if rows < most else _LARGER_IS_WORTH_A_TRY)
        for rows in sizes
        if rows not in known and fewest < rows <= max(most, at_hand)
    }
    best_untried = min(untried, key=untried.__getitem__, default=None)
    if best_untried is not None and untried[best_untried] <= least_s:
        return best_untried
    return next(rows for rows, row_s in known.items() if row_s <= _MUCH_THE_SAME * least_s)


def _row_s(seconds: RunSeconds, rows: int) -> float:
    return (seconds.expected_s(rows) + _PER_RUN_S) / rows
