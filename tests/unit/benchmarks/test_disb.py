"""What DISB's figures are made of, without a server."""

from collections.abc import Mapping

import pytest
import torch
from benchmarks.disb_load import Counted, Spent
from benchmarks.disb_networks import InSteps, Progress, Whole, build, example
from benchmarks.disb_report import Sample, figures, one_step_ms, sample
from benchmarks.disb_steps import Timing
from benchmarks.disb_workloads import NETWORKS, WORKLOADS, Setting

from moorage import Batch

RATES_PER_S = dict.fromkeys(NETWORKS, 50.0)


@pytest.mark.parametrize("name", WORKLOADS)
def test_settings_differ_in_priorities_and_company_alone(name: str) -> None:
    workload = WORKLOADS[name]
    solo, off, on = (workload.plan(setting, RATES_PER_S, 5.0, seed=3) for setting in Setting)
    assert solo["tasks"] == off["tasks"][: len(workload.real_time)]
    assert {task["priority"] for task in solo["tasks"] + off["tasks"]} == {0}
    assert [task["priority"] for task in on["tasks"]] == [1] * len(workload.real_time) + [5] * len(workload.best_effort)
    assert [{**task, "priority": 0} for task in on["tasks"]] == off["tasks"]
    assert solo["seed"] == off["seed"] == on["seed"]


def test_real_time_asks_for_its_share_of_its_rate() -> None:
    for name, share in (("A", 0.30), ("C", 0.30), ("D", 0.06), ("E", 0.06)):
        plan = WORKLOADS[name].plan(Setting.SOLO, RATES_PER_S, 5.0, seed=0)
        assert [task["per_s"] for task in plan["tasks"]] == pytest.approx([share * 50.0] * len(plan["tasks"]))


@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_answers_alike_whole_and_in_steps(network: str) -> None:
    threads = torch.get_num_threads()
    try:
        whole, stepped = Whole(), InSteps()
        whole.stages = torch.nn.ModuleList(build(network))
        stepped.stages = torch.nn.ModuleList(build(network))
    finally:
        torch.set_num_threads(threads)
    state = Progress(example(network))
    with torch.inference_mode():
        expected = whole.infer({"INPUT0": example(network)}, Batch((), 1, {}))["OUTPUT0"]
        steps = [stepped.step([state])[0] for _ in stepped.stages]
    assert [step.done for step in steps] == [False] * (len(steps) - 1) + [True]
    assert steps[-1].outputs is not None
    torch.testing.assert_close(steps[-1].outputs["OUTPUT0"], expected)
    assert expected.shape == (1, 10)


def timings(**stages: list[float]) -> Mapping[str, Timing]:
    return {name: Timing(stages=each, p50_ms=sum(each), p99_ms=sum(each)) for name, each in stages.items()}


def test_one_step_is_a_stage_of_a_stepped_model_and_a_run_of_another() -> None:
    assert one_step_ms(timings(plain=[4.0, 5.0], dense=[3.0, 1.0])) == 5.0
    assert one_step_ms(timings(plain=[4.0, 5.0], dense=[3.0, 3.0])) == 6.0


def test_a_sample_tells_real_time_from_best_effort() -> None:
    spent = [Spent(waited_ms=2.0, computed_ms=9.0), Spent(waited_ms=0.0, computed_ms=0.0)]
    counted = Counted(latencies_ms=[[12.0, 10.0, 11.0], [50.0, 60.0]], spent=spent)
    found = sample(WORKLOADS["A"], counted, 0.1, timings(residual=[10.0], plain=[20.0]))
    assert (found.p50_ms, found.p99_ms, found.real_time, found.best_effort, found.total) == (11.0, 12.0, 3, 2, 5)
    assert found.waited_ms == 2.0
    assert found.work == pytest.approx((3 * 10.0 + 2 * 20.0) / 100.0)
    with pytest.raises(ValueError, match="no real-time request"):
        sample(
            WORKLOADS["A"], Counted(latencies_ms=[[], [1.0]], spent=spent), 0.1, timings(residual=[10.0], plain=[20.0])
        )


def round_of(on_p99_ms: float, on_best_effort: int) -> Mapping[Setting, Sample]:
    return {
        Setting.SOLO: Sample(9.0, 10.0, 0.0, 100, 0, 0.3),
        Setting.OFF: Sample(20.0, 30.0, 12.0, 100, 100, 1.0),
        Setting.ON: Sample(10.0, on_p99_ms, 2.0, 100, on_best_effort, 0.9),
    }


def test_figures_are_medians_of_rounds_and_say_whether_the_aim_is_met() -> None:
    found = figures([round_of(14.0, 95), round_of(15.0, 98), round_of(40.0, 50)], one_step_ms=5.0)
    assert (found.solo_p99_ms, found.off_p99_ms, found.on_p99_ms, found.ratio) == (10.0, 30.0, 15.0, 1.5)
    assert found.most_ms == pytest.approx(18.0)
    assert found.best_effort_kept == pytest.approx(0.95)
    assert found.total_kept == pytest.approx(0.975)
    assert found.met
    assert not figures([round_of(18.1, 98)], one_step_ms=5.0).met
    assert not figures([round_of(15.0, 80)], one_step_ms=5.0).met
