"""Simulated worker processes: every order takes the time that tables and links say, and is answered."""

from collections.abc import Callable, Mapping
from typing import Any

from moorage.domain.model import ModelKey
from moorage.domain.request import RunResult
from moorage.scheduling import actions, events
from moorage.scheduling.actions import Run
from moorage.simulation.agenda import Agenda
from moorage.simulation.devices import Device, Process
from moorage.simulation.fleet import Fleet
from moorage.simulation.stepping import Steps
from moorage.simulation.tally import Tally

START_S = 2.0  # a worker with torch in it comes up in about that
QUICK_S = 0.002  # what only frees memory, or ends a process

_RESULT = RunResult(outputs=(), input_ns=0, infer_ns=0, output_ns=0)
_Answer = tuple[Process, events.Event]


class Processes:
    """Takes orders from the scheduler; `send` is how they are answered.

    Memory is taken when an order for it is given, and is free when the order to free it is answered.
    """

    def __init__(
        self,
        fleet: Fleet,
        devices: Mapping[str, Device],
        agenda: Agenda,
        tally: Tally,
        send: Callable[[events.Event], None],
    ) -> None:
        self._fleet = fleet
        self._devices = devices
        self._agenda = agenda
        self._tally = tally
        self._send = send
        self._steps = Steps()
        self._processes: dict[str, Process] = {}
        self._loaded_before: set[ModelKey] = set()
        self.performs: dict[type, Callable[[Any], None]] = {
            actions.Execute: lambda action: self._execute(action.run),
            actions.StartWorker: self._start,
            actions.StopWorker: lambda action: self._end(action.worker, "stopped"),
            actions.KillWorker: self._kill,
            actions.Load: self._load,
            actions.Unload: self._unload,
            actions.Offload: self._offload,
            actions.Restore: self._restore,
            actions.Suspend: self._suspend,
            actions.Drop: self._drop,
        }

    # Processes.

    def _start(self, action: actions.StartWorker) -> None:
        process = Process(action.worker, self._devices[action.device])
        self._processes[action.worker] = process
        self._hold(process, process.device.group.context_bytes)
        self._agenda.after(START_S, self._answer, (process, events.WorkerUp(action.worker)))

    def _kill(self, action: actions.KillWorker) -> None:
        self._tally.kills += 1
        self._end(action.worker, action.reason)

    def _end(self, worker: str, reason: str) -> None:
        self._agenda.after(QUICK_S, self._ended, (self._processes[worker], reason))

    def _ended(self, ended: tuple[Process, str]) -> None:
        process, reason = ended
        if process.alive:
            process.alive = False
            self._hold(process, -process.held_bytes)
            self._send(events.WorkerLost(process.worker, reason))

    # Models.

    def _load(self, action: actions.Load) -> None:
        process, key = self._processes[action.worker], action.key
        size_bytes = self._place(process, key)
        device = process.device
        self._tally.loads.add(size_bytes)
        if key in self._loaded_before:
            self._tally.reloads.add(size_bytes)
        self._loaded_before.add(key)
        loaded = events.ModelLoaded(
            key,
            size_bytes,
            load_s=device.disk.seconds(size_bytes),
            stepped=action.spec.simulated.steps > 1,
            can_offload=device.group.host_bytes > 0,
        )
        self._agenda.at(device.disk.carry(size_bytes, self._agenda.now_s), self._answer, (process, loaded))

    def _restore(self, action: actions.Restore) -> None:
        process = self._processes[action.worker]
        process.offloaded.remove(action.key)
        size_bytes = self._place(process, action.key)
        self._tally.restores.add(size_bytes)
        link = process.device.to_device
        restored = events.ModelRestored(action.key, link.seconds(size_bytes))
        self._agenda.at(link.carry(size_bytes, self._agenda.now_s), self._answer, (process, restored))

    def _place(self, process: Process, key: ModelKey) -> int:
        size_bytes = self._fleet.specs[key].memory.weights_bytes or 0
        process.weights[key] = size_bytes
        self._hold(process, size_bytes)
        return size_bytes

    def _offload(self, action: actions.Offload) -> None:
        process = self._processes[action.worker]
        size_bytes = process.weights[action.key]
        self._tally.offloads.add(size_bytes)
        done_s = process.device.to_host.carry(size_bytes, self._agenda.now_s)
        self._agenda.at(done_s, self._offloaded, (process, action.key))

    def _offloaded(self, moved: tuple[Process, ModelKey]) -> None:
        process, key = moved
        if process.alive:
            process.offloaded.add(key)
            self._hold(process, -process.weights.pop(key))
            self._send(events.ModelOffloaded(key))

    def _unload(self, action: actions.Unload) -> None:
        process = self._processes[action.worker]
        self._tally.unloads.add(process.weights.get(action.key, 0))
        self._agenda.after(QUICK_S, self._unloaded, (process, action.key))

    def _unloaded(self, gone: tuple[Process, ModelKey]) -> None:
        process, key = gone
        if process.alive:
            process.offloaded.discard(key)
            self._hold(process, -process.weights.pop(key, 0))
            self._send(events.ModelUnloaded(key))

    # Runs and steps.

    def _execute(self, run: Run) -> None:
        process, device, now_s = self._processes[run.worker], self._devices[run.workspace.device], self._agenda.now_s
        self._tally.started(run, device.index)
        costs = self._fleet.specs[run.key].simulated
        process.runs[run] = run.workspace.size_bytes
        taken_bytes, ready_s = run.workspace.size_bytes, now_s
        if run.step is not None:
            restored_bytes = self._steps.begin(process, run, costs.state_bytes)
            taken_bytes += restored_bytes + len(run.step.starting) * costs.state_bytes
            ready_s = device.to_device.carry(restored_bytes, now_s) if restored_bytes else now_s
        self._hold(process, taken_bytes)
        done_s = device.compute(ready_s, costs.run_s + run.rows * costs.run_s_per_row)
        self._agenda.at(done_s, self._stepped if run.step is not None else self._finished, (process, run))

    def _finished(self, computed: tuple[Process, Run]) -> None:
        process, run = computed
        if process.alive:
            self._hold(process, -process.runs.pop(run))
            self._send(events.RunFinished(run.run_id, _RESULT))

    def _stepped(self, computed: tuple[Process, Run]) -> None:
        process, run = computed
        if not process.alive:
            return
        workspace_bytes = process.runs.pop(run)
        costs = self._fleet.specs[run.key].simulated
        results = self._steps.end(process, run, costs.steps)
        done = sum(result.done for result in results)
        self._hold(process, -workspace_bytes - done * costs.state_bytes)
        self._send(events.StepFinished(run.run_id, results))

    def _suspend(self, action: actions.Suspend) -> None:
        process = self._processes[action.worker]
        self._tally.suspensions += len(action.request_ids)
        size_bytes = sum(process.states[request_id] for request_id in action.request_ids)
        done_s = process.device.to_host.carry(size_bytes, self._agenda.now_s)
        self._agenda.at(done_s, self._suspended, (process, action))

    def _suspended(self, moved: tuple[Process, actions.Suspend]) -> None:
        process, action = moved
        if process.alive:
            held_bytes = sum(process.states.values())
            self._steps.suspend(process, action.request_ids)
            self._hold(process, sum(process.states.values()) - held_bytes)
            self._send(events.StatesSuspended(action.key, action.request_ids))

    def _drop(self, action: actions.Drop) -> None:
        process = self._processes[action.worker]
        self._tally.drops += sum(request_id in self._tally.waiting for request_id in action.request_ids)
        self._agenda.after(QUICK_S, self._dropped, (process, action))

    def _dropped(self, gone: tuple[Process, actions.Drop]) -> None:
        process, action = gone
        if process.alive:
            held_bytes = sum(process.states.values())
            self._steps.drop(process, action.request_ids)
            self._hold(process, sum(process.states.values()) - held_bytes)
            self._send(events.StatesDropped(action.key, action.request_ids))

    def _hold(self, process: Process, size_bytes: int) -> None:
        if size_bytes:
            process.device.hold(size_bytes, self._agenda.now_s)

    def _answer(self, answer: _Answer) -> None:
        process, event = answer
        if process.alive:
            self._send(event)
