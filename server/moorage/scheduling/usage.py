"""How often a model is asked for, so that those most likely to be wanted stay in memory."""

from collections import deque

# Uses that the rate is taken over (LRU-K's K).
USES_KEPT = 16


class Usage:
    """The moments of a model's latest uses.

    The rate is that of the last few uses, over the time from the first of them until now: for a busy model that
    looks back a moment, for a quiet one far, and it falls while nothing comes. This is the backward K-distance of
    LRU-K (O'Neil, O'Neil and Weikum, SIGMOD 1993).
    """

    __slots__ = ("_moments_s", "_remembered_per_s", "last_s")

    def __init__(self, remembered_per_s: float = 0.0) -> None:
        self._moments_s: deque[float] = deque(maxlen=USES_KEPT)
        self._remembered_per_s = remembered_per_s
        self.last_s = float("-inf")

    def note(self, now: float) -> None:
        """The model was asked for."""
        self._moments_s.append(now)
        self.last_s = now

    def per_s(self, now: float) -> float:
        """Uses per second to be expected. Without any in this life of the server, what was seen in the one before."""
        if not self._moments_s:
            return self._remembered_per_s
        return len(self._moments_s) / max(now - self._moments_s[0], 1e-3)
