"""What a device offers, and what each model may have of it: changed while the server runs."""

from moorage.domain.model import ModelKey, ModelSpec, SharePolicy
from moorage.scheduling.requests import Requests
from moorage.scheduling.state import State


class Shares:
    """Takes in what operators and other processes change."""

    def __init__(self, state: State, requests: Requests) -> None:
        self._state = state
        self._requests = requests

    def capacity_changed(self, name: str, capacity_bytes: int) -> None:
        """Other processes took memory of a device or gave it back. Never more than was configured."""
        budget = self._state.devices[name].budget
        budget.capacity_bytes = max(0, min(capacity_bytes, budget.configured_bytes))
        self._state.stir(name)

    def inherited(self, key: ModelKey, spec: ModelSpec) -> SharePolicy:
        """A new model's standing: what it declares, unless an operator gave the one that it succeeds another."""
        for other, model in reversed(self._state.models.items()):
            is_before = (other.name, other.version) == (key.name, key.version) and not other.is_understudy
            if is_before and model.share != model.spec.share:
                return model.share
        return spec.share

    def can_change(self, key: ModelKey, share: SharePolicy) -> int:
        """Bytes that are missing for what a model is to have reserved; 0 if it can be had."""
        model = self._state.models[key]
        if model.device is None:
            return 0
        return self._state.device_of(model).budget.missing_to_reserve(model.semaphore, share.reserved_bytes)

    def changed(self, key: ModelKey, share: SharePolicy) -> None:
        """An operator gave a model another standing. What it holds already stays; a reservation is kept from now on.

        Nothing changes where so much is not free for it any more."""
        model = self._state.models.get(key)
        if model is None or self.can_change(key, share) > 0:
            return
        reserved_bytes, limit_bytes = share.reserved_bytes, share.limit_bytes
        if model.device is None:
            model.semaphore.reserved_bytes, model.semaphore.limit_bytes = reserved_bytes, limit_bytes
        else:
            budget = self._state.device_of(model).budget
            budget.change_share(model.semaphore, reserved_bytes=reserved_bytes, limit_bytes=limit_bytes)
            self._state.stir(model.device)
        model.share = share
        self._requests.refuse_what_never_fits(model)
        self._state.touch(model)
