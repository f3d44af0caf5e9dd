"""How much of a batch the engine has at once."""

from dataclasses import dataclass

from moorage.domain.model import ModelSpec

_LEAST_ROWS = 16
_BATCHES_AHEAD = 2
_MOST_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class Window:
    """What is with the engine: enough for every instance to compute a full run and for the next to wait, no more.

    A single item may be larger.
    """

    rows: int = 0
    size_bytes: int = 0
    max_rows: int = _LEAST_ROWS
    max_bytes: int = _MOST_BYTES

    def fit(self, spec: ModelSpec) -> None:
        """Be as large as the model needs, but leave half of its queue to others."""
        wanted = max(_LEAST_ROWS, (spec.instances + _BATCHES_AHEAD) * spec.max_batch_size)
        self.max_rows = max(1, min(wanted, spec.queue.max_rows // 2))
        self.max_bytes = min(_MOST_BYTES, spec.queue.max_bytes // 2)

    @property
    def is_full(self) -> bool:
        return self.rows >= self.max_rows or self.size_bytes >= self.max_bytes

    def enter(self, rows: int, size_bytes: int) -> None:
        self.rows += rows
        self.size_bytes += size_bytes

    def leave(self, rows: int, size_bytes: int) -> None:
        self.rows -= rows
        self.size_bytes -= size_bytes
