"""What a batch is, as its client said when it opened it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

DAY_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When an item that failed is tried again.

    attempts: tries in all, the first included. codes: names of the statuses after which another may help.
    """

    attempts: int = 3
    first_backoff_s: float = 0.5
    max_backoff_s: float = 30.0
    codes: tuple[str, ...] = ("ABORTED", "RESOURCE_EXHAUSTED", "UNAVAILABLE")


@dataclass(frozen=True, slots=True)
class Header:
    """Two of the same id that are equal mean the same batch.

    model_version: empty for the latest. priority: 1 highest to 5. timeout_s: from when it was opened. ordered: whether
    results come in the order of their items. durable: whether it survives the server. result_ttl_s: how long what
    became of it is kept. item_states: whether its readers want to hear what each item does.
    """

    batch_id: str
    model: str
    model_version: str = ""
    priority: int = 5
    timeout_s: float = DAY_S
    ordered: bool = False
    durable: bool = False
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    result_ttl_s: float = DAY_S
    labels: Mapping[str, str] = field(default_factory=dict)
    item_states: bool = False
