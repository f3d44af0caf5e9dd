"""A scenario under several policies."""

from collections.abc import Sequence

from moorage.scheduling.policy import Policy
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits
from moorage.simulation.arrivals import Traffic
from moorage.simulation.fleet import Fleet, assemble
from moorage.simulation.report import Report, figures_of
from moorage.simulation.scenario import DeviceGroup, Scenario
from moorage.simulation.world import World


def simulate(scenario: Scenario, policies: Sequence[Policy]) -> Report:
    """Run a scenario once under each policy, with the same requests.

    Raises ScenarioError where a trace asks for what is not there, and SimulationError where the scheduler breaks a
    promise.
    """
    fleet = assemble(scenario)
    return Report(
        scenario=scenario.name,
        seed=scenario.seed,
        devices=len(fleet.devices),
        models=len(fleet.keys),
        weights_bytes=sum(fleet.weights_bytes),
        policies=tuple(figures_of(policy.name, run(scenario, fleet, policy), fleet) for policy in policies),
    )


def run(scenario: Scenario, fleet: Fleet, policy: Policy) -> World:
    """One policy's world, at its end. Raises as `simulate` does."""
    devices = {name: _limits(group) for name, group in fleet.devices.items()}
    world = World(Scheduler(devices, scenario.limits, policy), fleet, Traffic(scenario, fleet))
    world.run()
    return world


def _limits(group: DeviceGroup) -> DeviceLimits:
    return DeviceLimits(
        group.capacity_bytes, group.context_bytes, host_bytes=group.host_bytes, run_slots=group.run_slots
    )
