"""What must hold at every moment, whatever happens."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.domain.model import ModelKey
from moorage.scheduling.actions import Run
from moorage.scheduling.placement import expected_weights_bytes
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import State, WorkerState


@dataclass
class Process:
    """A worker process, with the memory it really holds."""

    device: str
    context_bytes: int
    up: bool = False
    told_to_end: bool = False
    building: ModelKey | None = None
    weights: dict[ModelKey, int] = field(default_factory=dict)
    unloading: set[ModelKey] = field(default_factory=set)
    runs: dict[int, Run] = field(default_factory=dict)

    @property
    def held_bytes(self) -> int:
        return (
            self.context_bytes
            + sum(self.weights.values())
            + sum(run.workspace.size_bytes for run in self.runs.values())
        )


def check(scheduler: Scheduler, processes: Mapping[str, Process]) -> None:
    """Hold the scheduler's books against themselves and against what processes really hold."""
    scheduler.check_integrity()
    for name, budget in scheduler.state.budgets.items():
        held_bytes = sum(process.held_bytes for process in processes.values() if process.device == name)
        assert held_bytes <= budget.leased_bytes <= budget.capacity_bytes
        assert budget.free_bytes + budget.leased_bytes == budget.capacity_bytes
        assert budget.free_bytes >= 0
    _nobody_forgotten(scheduler.state)


def _nobody_forgotten(state: State) -> None:
    """Whoever is first in line could not go on even now."""
    for device, line in state.short_of_memory.items():
        model = state.models[next(iter(line))] if line else None
        if model is not None and model.worker is not None and state.workers[model.worker].state is WorkerState.UP:
            assert model.queue.head is not None
            rows = model.queue.head.request.rows
            assert model.spec.memory.workspace_bytes(rows) > state.budgets[device].free_bytes
    for device, budget in state.budgets.items():
        loads = [state.models[key] for key in state.pending_loads if state.models[key].device == device]
        first = next((model for model in loads if model.weights is None), None)
        assert first is None or expected_weights_bytes(first.spec) > budget.free_bytes


def check_turn(state: State, run: Run, lines_before: Mapping[str, list[ModelKey]]) -> None:
    """Nobody who already waited for memory was passed over by this run."""
    line = lines_before[run.workspace.device]
    ahead = line[: line.index(run.key)] if run.key in line else line
    if run.workspace.size_bytes:
        assert not set(ahead) & set(state.short_of_memory[run.workspace.device])
