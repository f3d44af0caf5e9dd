"""`moorage simulate`: the scheduler on virtual time."""

from pathlib import Path
from typing import Annotated

import typer

from moorage.cli.terminal import FAILED, WRONG_USAGE, fail, stdout


def simulate(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO.toml", help="Devices, models and arrivals.")],
    policies: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="NAME", help="moorage (the default), fifo, lru or round_robin; repeatable."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", min=0, help="Instead of the scenario's own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines: sizes in bytes, times in seconds.")] = False,
) -> None:
    """Run the scheduler on a scenario, in virtual time over simulated devices, and report how it did.

    The same scenario and seed give the same report. Exits with 2 where the scenario or a policy is wrong, and with 1
    where the scheduler broke a promise: more memory than there is, a request without an outcome.
    """
    from moorage.scheduling.policy import policy_named
    from moorage.simulation.errors import SimulationError
    from moorage.simulation.loading import load_scenario
    from moorage.simulation.reading import ScenarioError
    from moorage.simulation.simulate import simulate as simulate_all
    from moorage.simulation.tables import table

    try:
        chosen = [policy_named(name) for name in dict.fromkeys(policies or ["moorage"])]
    except ValueError as error:
        fail(str(error), WRONG_USAGE)
    try:
        report = simulate_all(load_scenario(scenario, seed=seed), chosen)
    except ScenarioError as error:
        fail(str(error), WRONG_USAGE)
    except SimulationError as error:
        fail(str(error), FAILED)
    if as_json:
        typer.echo(report.to_json())
    else:
        stdout().print(table(report))
