"""Whether and when an item that failed is tried again: a decision, without a clock."""

from dataclasses import dataclass

from moorage.batches.header import RetryPolicy
from moorage.domain.errors import ModelNotReady, MoorageError, QueueFull, RateLimited, ServerDraining

_SHORTEST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after delay_s. costs_attempt: whether it was a try that counts."""

    delay_s: float
    costs_attempt: bool


def decide(policy: RetryPolicy, error: MoorageError, code: str, attempts: int, jitter: float) -> Retry | None:
    """What comes after an item's try number `attempts`, which failed; None: the error is what became of it.

    code: the name of the error's status. jitter: from 0 to 1, so that items that failed together do not come back
    together. What was refused before anything was tried costs no attempt.
    """
    if isinstance(error, QueueFull | RateLimited | ServerDraining | ModelNotReady):
        asked_s = error.retry_after_s if error.retry_after_s is not None else 1.0
        pause_s = min(max(asked_s, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)
        return Retry(pause_s * (1 + jitter / 2), costs_attempt=False)
    if code not in policy.codes or attempts >= policy.attempts:
        return None
    ceiling_s = min(policy.max_backoff_s, policy.first_backoff_s * 2 ** min(attempts - 1, 30))
    backoff_s = ceiling_s * (1 + jitter) / 2
    return Retry(max(backoff_s, error.retry_after_s or 0.0), costs_attempt=True)
