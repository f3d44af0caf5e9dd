"""One model is flooded by 64 callers, another of the same priority has 2. By hand, for both variants of weights:

python -m tests.integration.load.fair_shares [SECONDS]

Exit code 1 where the device's seconds are not shared by the weights, to 10 %.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.integration.load.callers import channels, closed_loop
from tests.support.calls import Calls, calls_to
from tests.support.polling import eventually
from tests.support.running_server import running_server
from tests.support.toy_models import write_python_model

CALLERS: Mapping[str, int] = {"flooded": 64, "modest": 2}
VARIANTS: tuple[Mapping[str, float], ...] = ({"flooded": 1.0, "modest": 1.0}, {"flooded": 2.0, "modest": 1.0})
OFF_BY = 0.1
_SETTLING_S = 1.0

# Takes 20 ms and 1 ms for each row, of one device that runs one at a time.
_WORKS = """
    import time
    from moorage import Model

    class Works(Model):
        def infer(self, inputs, batch):
            time.sleep(0.020 + 0.001 * batch.rows)
            return {"y": inputs["x"]}
"""


@dataclass(frozen=True)
class Shares:
    """seconds: of the device, by model. weights: as declared. wall_s: how long it was measured."""

    seconds: Mapping[str, float]
    weights: Mapping[str, float]
    wall_s: float

    @property
    def parts(self) -> dict[str, float]:
        """Each model's, of all that was used."""
        return {name: seconds / sum(self.seconds.values()) for name, seconds in self.seconds.items()}

    @property
    def faults(self) -> list[str]:
        """What is not as it should be."""
        of_all = sum(self.weights.values())
        due = {name: weight / of_all for name, weight in self.weights.items()}
        return [
            f"{name} had {part:.3f} of the device's seconds, {due[name]:.3f} were due"
            for name, part in self.parts.items()
            if abs(part / due[name] - 1) > OFF_BY
        ]

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {part:.3f} of weight {self.weights[name]:g}" for name, part in self.parts.items())
        return f"{parts}; the device was busy for {sum(self.seconds.values()) / self.wall_s:.2f} of {self.wall_s:.1f} s"


def measure(folder: Path, weights: Mapping[str, float], seconds: float) -> Shares:
    """Serve both models on one device, flood one, and see what each had."""
    for name, weight in weights.items():
        extra = f"[scheduling]\nweight = {weight}\nmax_queue_rows = 4096\n"
        write_python_model(folder / "models", name, _WORKS, max_batch_size=32, extra=extra)
    environment = {"MOORAGE_DEVICES__CPU__RUN_SLOTS": "1", "MOORAGE_SERVER__CHECK_INTEGRITY": "false"}
    with running_server(folder / "models", folder, environment=environment) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        return asyncio.run(_measure(server.grpc, calls, weights, seconds))


async def _measure(target: str, calls: Calls, weights: Mapping[str, float], seconds: float) -> Shares:
    async with channels(target, sum(CALLERS.values())) as opened:
        end_s = time.monotonic() + _SETTLING_S + seconds + 0.5
        names = [name for name, count in CALLERS.items() for _ in range(count)]
        callers = [
            asyncio.create_task(closed_loop(methods, name, end_s)) for methods, name in zip(opened, names, strict=True)
        ]
        await asyncio.sleep(_SETTLING_S)
        began_s, before = time.monotonic(), await asyncio.to_thread(_device_seconds, calls)
        await asyncio.sleep(seconds)
        wall_s, after = time.monotonic() - began_s, await asyncio.to_thread(_device_seconds, calls)
        answers = [answer for caller in await asyncio.gather(*callers) for answer in caller]
    assert {answer.code for answer in answers} == {"OK"}
    return Shares({name: after[name] - before[name] for name in weights}, weights, wall_s)


def _device_seconds(calls: Calls) -> dict[str, float]:
    """What the runs of each model took so far."""
    return {
        name: sum(size.compute_infer.ns for size in model.batch_stats) / 1e9
        for name, model in calls.statistics().items()
    }


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    failed = False
    for weights in VARIANTS:
        with tempfile.TemporaryDirectory() as folder:
            shares = measure(Path(folder), weights, seconds)
        sys.stdout.write(f"{shares}\n")
        failed |= bool(shares.faults)
        for fault in shares.faults:
            sys.stdout.write(f"  {fault}\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
