"""One loaded model's memory: measured, moved to the host and back, and looked for when the model has gone."""

import torch

from moorage.workers.runtimes.holdings import find, is_on
from moorage.workers.runtimes.parking import Parked, Parking
from moorage.workers.runtimes.remains import Remains


class Weights:
    """Keeps no reference to anything of the model's, so that it can't be what keeps its memory.

    retained_bytes: of all that the model was ever seen to hold on the device, what is still there.
    """

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self._parking = Parking(device)
        self._remains = Remains(self.device)
        self._parked: Parked | None = None

    def size_bytes(self, *roots: object) -> int:
        """Bytes of the device that objects hold; from now on they are looked for."""
        holdings = find(*roots)
        self._remains.watch(holdings)
        return holdings.size_bytes(self.device)

    def can_park(self, *roots: object) -> bool:
        """Whether there are tensors on the device, to be moved."""
        storages = [tensor.untyped_storage() for tensor in find(*roots).tensors]
        return any(storage.nbytes() and is_on(storage, self.device) for storage in storages)

    def park(self, *roots: object) -> int:
        """Move what objects hold to the host; the bytes that it takes there. Raises as Parking.park does."""
        self.size_bytes(*roots)
        self._parked = self._parking.park(*roots)
        return self._parked.size_bytes

    def bring_back(self) -> None:
        """Undo park. Raises as Parking.bring_back does."""
        assert self._parked is not None
        self._parking.bring_back(self._parked)
        self._parked = None

    def retained_bytes(self) -> int:
        return self._remains.alive_bytes()

    def close(self) -> None:
        """Give up what is on the host."""
        if self._parked is not None:
            self._parked.close()
            self._parked = None
