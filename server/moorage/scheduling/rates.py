"""Limits of how much a model may be asked for per second."""

from moorage.domain.errors import RateLimited
from moorage.domain.model import RatePolicy


class _Bucket:
    """A token bucket: filled at a constant rate up to its size, it lets through as long as anything is in it.

    Whoever finds it full may take more than its size, and leaves it in debt: so no single request is too large for
    ever, and over any time no more goes through than the rate allows, the size, and one request.
    """

    __slots__ = ("_filled_s", "_level", "per_s", "size")

    def __init__(self, per_s: float, size: float) -> None:
        self.per_s = per_s
        self.size = size
        self._level = size
        self._filled_s = float("-inf")

    def missing_s(self, count: float, now: float) -> float:
        """Seconds until so many can be taken; 0 if they can now."""
        elapsed_s = max(0.0, now - self._filled_s)
        self._level = min(self.size, self._level + elapsed_s * self.per_s)
        self._filled_s = now
        return max(0.0, (min(count, self.size) - self._level) / self.per_s)

    def take(self, count: float) -> None:
        self._level -= count


class RateLimit:
    """Requests and rows of one model. One without limits needs none of this."""

    __slots__ = ("_buckets", "_model")

    def __init__(self, model: str, policy: RatePolicy) -> None:
        self._model = model
        limits = (("requests", policy.requests_per_s), ("rows", policy.rows_per_s))
        self._buckets = {
            unit: _Bucket(per_s, max(1.0, per_s * policy.burst_s)) for unit, per_s in limits if per_s is not None
        }

    def refusal(self, rows: int, now: float) -> RateLimited | None:
        """Why a request of so many rows can't be taken now; None if it can, and then it is counted."""
        counts = {"requests": 1, "rows": rows}
        # The unit that lacks longest: who came again when the other one is back would only be refused once more.
        lacking, longest_s = "", 0.0
        for unit, bucket in self._buckets.items():
            missing_s = bucket.missing_s(counts[unit], now)
            if missing_s > longest_s:
                lacking, longest_s = unit, missing_s
        if lacking:
            per_s = self._buckets[lacking].per_s
            return RateLimited(self._model, unit=lacking, limit_per_s=per_s, retry_after_s=longest_s)
        for unit, bucket in self._buckets.items():
            bucket.take(counts[unit])
        return None
