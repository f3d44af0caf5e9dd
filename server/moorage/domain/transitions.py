"""How the state of a model may change."""

from collections.abc import Mapping

from moorage.domain.model import ModelState

_S = ModelState

TRANSITIONS: Mapping[ModelState, frozenset[ModelState]] = {
    _S.UNLOADED: frozenset({_S.LOADING}),
    # Back to unloaded: cancelled before it began, or refused for want of memory.
    # Loading again: its worker died before it was done.
    _S.LOADING: frozenset({_S.LOADING, _S.RESIDENT, _S.FAILED, _S.UNLOADED, _S.UNLOADING}),
    # Back to loading or unloaded: the worker died, and the model comes back by itself unless it was closing.
    _S.RESIDENT: frozenset({_S.OFFLOADING, _S.UNLOADING, _S.LOADING, _S.UNLOADED}),
    # Unloading: it could not be offloaded. Unloaded, here and below: the worker died.
    _S.OFFLOADING: frozenset({_S.OFFLOADED, _S.UNLOADING, _S.UNLOADED}),
    _S.OFFLOADED: frozenset({_S.RESTORING, _S.UNLOADING, _S.UNLOADED}),
    # Unloading: it could not be brought back. Loading: the worker died, and its place is kept.
    _S.RESTORING: frozenset({_S.RESIDENT, _S.UNLOADING, _S.LOADING, _S.UNLOADED}),
    # Failed: it turned out too large once it was there, or its memory did not come free.
    _S.UNLOADING: frozenset({_S.UNLOADED, _S.FAILED}),
    # Unloaded: the worker that had kept memory of it ended.
    _S.FAILED: frozenset({_S.LOADING, _S.UNLOADED}),
}
