"""All checks, one after the other, and a table: tests/gpu/run.sh. Exit code 1 where anything was missed or failed."""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.gpu.card import Card, open_card
from tests.gpu.check_budget import check_budget
from tests.gpu.check_cap import check_cap
from tests.gpu.check_instances import check_instances
from tests.gpu.check_ledger import check_ledger
from tests.gpu.check_others import check_others
from tests.gpu.check_passing import check_passing
from tests.gpu.check_preemption import check_preemption
from tests.gpu.check_restore import check_restore
from tests.gpu.findings import Finding, Verdict, all_well, failed, table
from tests.gpu.machine import Machine
from tests.gpu.repository import write_heavy_models, write_models_in_steps, write_passers, write_twins
from tests.gpu.serving import Served, serving

# No check may take longer, nor all of them together.
_CHECK_LIMIT_S = 150.0
_LIMIT_S = 320.0

Check = Callable[[], Awaitable[list[Finding]]]


class Run:
    """Takes what each check finds, also where that is an exception. Says what happens while it does, on stderr."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.findings: list[Finding] = []
        self._began_s = time.monotonic()

    async def all_checks(self) -> None:
        with contextlib.ExitStack() as stack:
            card = stack.enter_context(open_card(self.machine.device)) if self.machine.is_card else None
            if card is not None:
                _say(f"{card.name}, {card.total_bytes / 1024**3:.0f} GiB")
            await self._served("heavy", write_heavy_models, lambda served: self._heavy(served, card, _used(card)))
            await self._served("stepped", write_models_in_steps, self._stepped)
            await self._served("passing", write_passers, lambda served: self._passing(served, card, _used(card)))
        await self._served("instances", write_twins, self._instances, run_slots=2)
        await self._check("cap", lambda: check_cap(self.machine, self.machine.folder_for("cap")))

    async def _heavy(self, served: Served, card: Card | None, idle_bytes: int) -> None:
        machine = self.machine
        await self._check("budget", lambda: check_budget(machine, served), served)
        await self._check("ledger", lambda: check_ledger(machine, served, card, idle_bytes), served)
        await self._check("restore", lambda: check_restore(machine, served), served)
        await self._check("others", lambda: check_others(machine, served, card), served)

    async def _stepped(self, served: Served) -> None:
        await self._check("preemption", lambda: check_preemption(self.machine, served), served)

    async def _passing(self, served: Served, card: Card | None, idle_bytes: int) -> None:
        await self._check("passing", lambda: check_passing(self.machine, served, card, idle_bytes), served)

    async def _instances(self, served: Served) -> None:
        await self._check("instances", lambda: check_instances(self.machine, served), served)

    async def _served(
        self,
        name: str,
        write: Callable[[Machine, Path], None],
        use: Callable[[Served], Awaitable[None]],
        run_slots: int = 1,
    ) -> None:
        models = self.machine.folder_for(name)
        write(self.machine, models)
        try:
            async with serving(self.machine, name, models, run_slots) as served:
                await use(served)
        except Exception as error:  # the other checks have servers of their own
            self.findings.append(failed(f"{name}: the server", _shown(error)))

    async def _check(self, name: str, check: Check, served: Served | None = None) -> None:
        began_s = time.monotonic()
        left_s = _LIMIT_S - (began_s - self._began_s)
        try:
            found = await asyncio.wait_for(check(), min(_CHECK_LIMIT_S, left_s))
        except Exception as error:  # whatever it is, the next check may still tell something
            found = [failed(name, _shown(error))]
        self.findings += found
        _say(f"{name}: {time.monotonic() - began_s:.1f} s")
        if served is not None and any(one.verdict is Verdict.FAILED for one in found):
            _say(served.log_tail())


def _used(card: Card | None) -> int:
    return card.used_bytes() if card is not None else 0


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/gpu/run.sh", description="What only a CUDA card can show.")
    parser.add_argument("--device", default="cuda:0", help="cuda:N, or cpu to try the checks themselves")
    parser.add_argument("--scale", type=float, default=1.0, help="1.0 for models of 8 GiB")
    parser.add_argument("--keep", type=Path, help="a folder for the servers' logs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="moorage-gpu-") as temporary:
        run = Run(Machine(options.device, options.scale, Path(temporary)))
        try:
            asyncio.run(run.all_checks())
        finally:
            if options.keep is not None:
                _keep(Path(temporary), options.keep)
            sys.stdout.write(table(run.findings) + "\n")
    return 0 if run.findings and all_well(run.findings) else 1


def _keep(folder: Path, kept: Path) -> None:
    kept.mkdir(parents=True, exist_ok=True)
    for log_file in folder.glob("*.log"):
        (kept / log_file.name).write_bytes(log_file.read_bytes())


if __name__ == "__main__":
    sys.exit(main())
