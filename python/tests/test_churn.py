"""The examples of churn's README (github.com/pjdurden/churn), with another import."""

import pytest

import testbed.churn as churn


def scenario():
    return churn.Scenario(
        seed=42, inner_steps=2, target_outer_steps=5, horizon=5_000_000,
        heartbeat_period=1000, heartbeat_miss_threshold=5,
        base_latency=100, bandwidth_bpus=10, state_bytes=100,
        workers=[churn.WorkerSpec(id=i, join_at=0, inner_step_mean=1000, inner_step_jitter=0)
                 for i in range(4)],
        injects=[churn.Slow(id=3, at=0, factor=10)],
    )  # fmt: skip


def test_run(capsys):
    res = churn.run(scenario(), churn.Straggler(churn.StragglerConfig(quorum=0.75)))
    print(res.metrics.wall_clock, res.metrics.utilization())
    print(len(res.trace), "events")
    assert res.metrics.wall_clock == 20_053
    assert round(res.metrics.utilization(), 2) == 0.89
    assert len(res.trace) == 86 and isinstance(res.trace[0], churn.Event)
    assert res.trace[-1].type == "run_end"
    assert churn.run(scenario()).metrics.wall_clock == 92_050
    assert round(churn.run(scenario(), churn.Baseline()).metrics.utilization(), 2) == 0.62


def test_compare():
    ab = churn.compare(scenario(), churn.StragglerConfig())
    assert f"{ab.wall_clock_speedup:.2f}× faster, +{ab.utilization_gain:.3f} utilization" == "4.59× faster, +0.268 utilization"


def test_the_sensitive_parameters():
    assert churn.run(scenario(), churn.Straggler(churn.StragglerConfig(quorum=0.76))).metrics.wall_clock == 92_050
    assert churn.run(scenario(), churn.Straggler(churn.StragglerConfig(sideline_limit=1))).metrics.wall_clock == 20_052
    assert churn.run(scenario(), churn.Straggler(churn.StragglerConfig(min_slack=10))).metrics.wall_clock == 20_080


def test_from_file(own_folder):
    scenario().to_file("persistent_straggler.json")
    again = churn.Scenario.from_file("persistent_straggler.json")
    assert churn.run(again, churn.Straggler()).metrics.wall_clock == 20_053


def test_joiner_stall():
    sc = scenario()
    sc.injects = []
    sc.workers[3].join_at = 5000
    assert churn.run(sc).metrics.joiner_stall_time == pytest.approx(110)
