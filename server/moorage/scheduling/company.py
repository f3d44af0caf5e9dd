"""Callers in closed loops come back soon after they were answered: how many are still expected, and until when."""

# The weight of the latest run's callers in what is expected of the next.
_WEIGHT = 0.2
# With fewer of them back, those who came are as likely to be others, who come at any time: on random arrivals the
# share is about two thirds, however many there are.
_LEAST_SHARE = 0.85
# Times the mean that the last one takes, beside twice its mean deviation.
_PATIENCE = 1.25


class Company:
    """Learns from one run's answers to the next which share of the callers comes back, and how long the last takes.

    Who comes soon after a run is taken for one who came back, up to as many as it answered. Soon is what the run took:
    longer than that it would never pay to wait.
    """

    __slots__ = ("_answered", "_answered_s", "_came", "_lag_s", "_last_s", "_latest", "_share", "_soon_s", "_spread_s")

    def __init__(self) -> None:
        self._answered = self._came = 0
        self._answered_s = self._last_s = self._soon_s = 0.0
        self._latest = self._share = self._lag_s = self._spread_s = 0.0

    def answered(self, callers: int, run_s: float, now: float) -> None:
        """A run ended, that took so long.

        Where those whom the one before answered are still expected, all of them come back as one, and share a run from
        then on: else one who came too late for a run, or ran in another instance beside it, would tear it apart.
        """
        if now < self.until_s and self.expected():
            self._answered += callers
            return
        if self._answered:
            self._learn()
        self._answered, self._came = callers, 0
        self._answered_s = self._last_s = now
        self._soon_s = now + run_s

    def _learn(self) -> None:
        self._latest = self._came / self._answered
        self._share += _WEIGHT * (self._latest - self._share)
        if self._came:
            lag_s = self._last_s - self._answered_s
            self._spread_s += _WEIGHT * (abs(lag_s - self._lag_s) - self._spread_s)
            self._lag_s += _WEIGHT * (lag_s - self._lag_s)

    def arrived(self, now: float) -> None:
        """A request came."""
        if self._came < self._answered and now <= self._soon_s:
            self._came += 1
            self._last_s = now

    def expected(self) -> int:
        """Callers who have not come back yet and are expected to.

        Where all came back the last time, all are: to begin without the last few would leave them behind for good.
        """
        if self._share < _LEAST_SHARE:
            return 0
        return max(0, round(max(self._share, self._latest) * self._answered) - self._came)

    @property
    def likely_s(self) -> float:
        """When the last of them is expected."""
        return self._answered_s + self._lag_s

    @property
    def until_s(self) -> float:
        """When whoever is still missing is not expected any more."""
        return self._answered_s + _PATIENCE * self._lag_s + 2 * self._spread_s
