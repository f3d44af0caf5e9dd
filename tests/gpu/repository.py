"""The models that the checks are served with, written into a repository of their own."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from tests.gpu.machine import MIB, Machine

HEAVY_MODELS = tuple(f"heavy{number}" for number in range(6))
HEAVY_GIB = 8.0
STATE_GIB = 4.5
GREEDY_GIB = 12.0
PASSED_GIB = 18.0
PASSERS = ("passer", "other-passer")
TWINS = ("twin", "urgent-twin")
TWIN_S = 0.4
STEPS = 60
STEP_S = 0.05
# Tensors of whole segments of CUDA's allocator, so that what is allocated is exactly what is held.
_PIECE_GIB = 0.25

_TENSORS = """
inputs = [{{ name = "x", datatype = "INT64", shape = [1] }}]
outputs = [{outputs}]
"""
_OUTPUT = '{{ name = "{name}", datatype = "{datatype}", shape = [{size}] }}'

_ALLOCATED = """
    import time

    import torch
    from moorage import Model, Step, SteppedModel

    def allocated_bytes(device):
        \"\"\"What tensors of this process take of a card. Of a CPU nobody knows.\"\"\"
        return torch.cuda.memory_allocated(device) if device != "cpu" else 0

    def checksum(pieces):
        return sum(int(piece.view(torch.int32).sum()) for piece in pieces)

    def seeded(device, seed, size_bytes, piece_bytes):
        generator = torch.Generator(device).manual_seed(seed)
        sizes = [piece_bytes] * (size_bytes // piece_bytes) + [size_bytes % piece_bytes]
        return [torch.rand(size // 4, generator=generator, device=device) for size in sizes if size]

    def cycles_of(device, seconds):
        \"\"\"For how many a card must sleep, to take so long; 0 of a CPU.\"\"\"
        if device == "cpu":
            return 0
        warm_s = time.monotonic() + 0.3  # a card that was idle has slow clocks
        while time.monotonic() < warm_s:
            torch.cuda._sleep(10**7)
            torch.cuda.synchronize()
        began_s = time.monotonic()
        torch.cuda._sleep(10**8)
        torch.cuda.synchronize()
        return int(10**8 * seconds / (time.monotonic() - began_s))
"""

HEAVY = """
    class Heavy(Model):
        def load(self, context):
            self.device = context.device
            size_bytes, piece_bytes = context.parameters["size_bytes"], context.parameters["piece_bytes"]
            self.pieces = seeded(self.device, context.parameters["seed"], size_bytes, piece_bytes)

        def infer(self, inputs, batch):
            allocated = allocated_bytes(self.device)
            on_card = self.device != "cpu"
            peak = torch.cuda.max_memory_allocated(self.device) if on_card else allocated
            reserved = torch.cuda.memory_reserved(self.device) if on_card else allocated
            found = {"sum": checksum(self.pieces), "allocated": allocated, "peak": peak, "reserved": reserved}
            return {name: torch.full((batch.rows, 1), value, dtype=torch.int64) for name, value in found.items()}
"""

MATMUL = """
    class Matmul(Model):
        \"\"\"What a model's first matrix product takes besides: the library's own workspace.\"\"\"

        def load(self, context):
            self.weight = torch.rand(512, 512, device=context.device)

        def infer(self, inputs, batch):
            device = str(self.weight.device)
            before = allocated_bytes(device)
            (self.weight @ self.weight).sum().item()
            taken = allocated_bytes(device) - before
            return {"taken": torch.full((batch.rows, 1), taken, dtype=torch.int64)}
"""

PATIENT = """
    class State:
        pass

    class Patient(SteppedModel):
        \"\"\"A fixed number of steps of a fixed length, and memory that has to be the same at the end.\"\"\"

        def load(self, context):
            self.device = context.device
            self.parameters = context.parameters
            self.cycles = cycles_of(self.device, self.parameters["step_s"])

        def start(self, inputs, request):
            state = State()
            state.began = []
            state.pieces = seeded(self.device, 1, self.parameters["size_bytes"], self.parameters["piece_bytes"])
            state.sum = checksum(state.pieces)
            return state

        def step(self, states):
            began_s = time.monotonic()
            if self.cycles:
                torch.cuda._sleep(self.cycles)
            else:
                time.sleep(self.parameters["step_s"])
            for state in states:
                state.began.append(began_s)
            return [self.outcome(state) for state in states]

        def outcome(self, state):
            if len(state.began) < self.parameters["steps"]:
                return Step()
            intact = torch.tensor([[int(checksum(state.pieces) == state.sum)]])
            return Step({"began": torch.tensor([state.began], dtype=torch.float64), "intact": intact}, done=True)
"""

URGENT = """
    class Urgent(Model):
        \"\"\"Says when it ran. Takes as much memory as it declares.\"\"\"

        def load(self, context):
            self.device = context.device
            self.weight = torch.ones(1, device=self.device)
            self.take_bytes = context.parameters["take_bytes"]

        def infer(self, inputs, batch):
            began_s = time.monotonic()
            taken = torch.zeros(self.take_bytes, dtype=torch.uint8, device=self.device)
            taken[-1].item()
            return {"began": torch.full((batch.rows, 1), began_s, dtype=torch.float64)}
"""

PASSER = """
    class Passer(Model):
        \"\"\"Takes as much memory as it declares, and says how much of the card all processes use then.\"\"\"

        def load(self, context):
            self.device = context.device
            self.weight = torch.ones(1, device=self.device)
            self.take_bytes = context.parameters["take_bytes"]

        def infer(self, inputs, batch):
            taken = torch.zeros(self.take_bytes, dtype=torch.uint8, device=self.device)
            taken[-1].item()
            free, total = torch.cuda.mem_get_info(self.device) if self.device != "cpu" else (0, 0)
            return {"used": torch.full((batch.rows, 1), total - free, dtype=torch.int64)}
"""

TWIN = """
    class Twin(Model):
        \"\"\"Keeps its stream busy for a while, and says which one it was, and of which priority.\"\"\"

        def load(self, context):
            self.device = context.device
            self.run_s = context.parameters["run_s"]
            self.cycles = cycles_of(self.device, self.run_s)

        def infer(self, inputs, batch):
            stream, priority = 0, 0
            if self.cycles:
                torch.cuda._sleep(self.cycles)
                current = torch.cuda.current_stream(self.device)
                default = torch.cuda.default_stream(self.device)
                stream, priority = (0 if current == default else current.stream_id), current.priority
            else:
                time.sleep(self.run_s)
            found = {"twice": 2 * int(inputs["x"].sum()), "stream": stream, "stream_priority": priority}
            return {name: torch.full((batch.rows, 1), value, dtype=torch.int64) for name, value in found.items()}
"""

TAKER = """
    class Taker(Model):
        \"\"\"Takes so many MiB as it is asked for, and says whether it got them.\"\"\"

        def load(self, context):
            self.device = context.device
            self.weight = torch.ones(1, device=self.device)

        def infer(self, inputs, batch):
            try:
                taken = torch.zeros(int(inputs["x"][0, 0]) * 2**20, dtype=torch.uint8, device=self.device)
                taken[-1].item()
            except torch.OutOfMemoryError:
                return {"y": torch.zeros(batch.rows, 4)}
            return {"y": torch.ones(batch.rows, 4)}
"""


def code_of(model: str) -> str:
    """A whole model.py."""
    return dedent(_ALLOCATED) + dedent(model)


def write_heavy_models(machine: Machine, folder: Path) -> None:
    """Six models that fill their memory with numbers from a seed, and one that multiplies matrices."""
    outputs = {"sum": "INT64", "allocated": "INT64", "peak": "INT64", "reserved": "INT64"}
    for seed, name in enumerate(HEAVY_MODELS):
        size_bytes = machine.size_bytes(HEAVY_GIB)
        memory = {"weights": size_bytes, "workspace_fixed": workspace_bytes(machine)}
        parameters = {"size_bytes": size_bytes, "piece_bytes": machine.size_bytes(_PIECE_GIB), "seed": seed}
        _write(folder / name, HEAVY, outputs, memory, parameters=parameters)
    _write(folder / "matmul", MATMUL, {"taken": "INT64"}, {"weights": 4 * 512 * 512})


def workspace_bytes(machine: Machine) -> int:
    """What a run of a heavy model is charged."""
    return machine.size_bytes(1 / 16)


def write_models_in_steps(machine: Machine, folder: Path) -> None:
    """One that takes its time in steps at priority 5, and two that don't at priority 1: a small one, a greedy one."""
    for name, gib in (("patient", STATE_GIB), ("slim", 0.0)):
        size_bytes = machine.size_bytes(gib)
        parameters = {"size_bytes": size_bytes, "piece_bytes": machine.size_bytes(_PIECE_GIB), "steps": STEPS}
        memory = {"state": size_bytes}
        outputs = {"began": "FP64", "intact": "INT64"}
        _write(folder / name, PATIENT, outputs, memory, 5, {**parameters, "step_s": STEP_S}, max_batch_size=4)
    for name, gib in (("urgent", 0.0), ("greedy", GREEDY_GIB)):
        size_bytes = machine.size_bytes(gib)
        memory = {"weights": MIB, "workspace_fixed": size_bytes + MIB}
        _write(folder / name, URGENT, {"began": "FP64"}, memory, 1, {"take_bytes": size_bytes})


def write_passers(machine: Machine, folder: Path) -> None:
    """Two models, each in a worker of its own, that need most of the budget for every run."""
    size_bytes = machine.size_bytes(PASSED_GIB)
    memory = {"weights": MIB, "workspace_fixed": size_bytes + MIB}
    for name in PASSERS:
        _write(folder / name, PASSER, {"used": "INT64"}, memory, parameters={"take_bytes": size_bytes})
    with (folder / PASSERS[1] / "model.toml").open("a") as file:
        file.write('[placement]\nisolation = "dedicated"\n')


def write_twins(machine: Machine, folder: Path) -> None:
    """Two models that may have two runs at once, one of them of high priority."""
    outputs = {"twice": "INT64", "stream": "INT64", "stream_priority": "INT64"}
    for name, priority in zip(TWINS, (3, 1), strict=True):
        _write(folder / name, TWIN, outputs, {"weights": MIB}, priority, {"run_s": TWIN_S}, instances=2)


def _write(
    folder: Path,
    code: str,
    outputs: dict[str, str],
    memory: dict[str, int],
    priority: int = 3,
    parameters: Mapping[str, float] | None = None,
    *,
    max_batch_size: int = 1,
    instances: int = 1,
) -> None:
    tensors = [_OUTPUT.format(name=name, datatype=datatype, size=_size(name)) for name, datatype in outputs.items()]
    lines = [
        'runtime = "python"',
        'load = "on_demand"',
        f"max_batch_size = {max_batch_size}",
        f"instances = {instances}",
        _TENSORS.format(outputs=", ".join(tensors)),
        "[memory]",
        *(f'{key} = "{size_bytes} B"' for key, size_bytes in memory.items()),
        "[scheduling]",
        f"priority = {priority}",
        "default_timeout_s = 90.0",
        "[parameters]",
        *(f"{key} = {value}" for key, value in (parameters or {}).items()),
    ]
    version = folder / "1"
    version.mkdir(parents=True)
    (folder / "model.toml").write_text("\n".join(lines) + "\n")
    (version / "model.py").write_text(code_of(code))


def _size(output: str) -> int:
    return -1 if output == "began" else 1
