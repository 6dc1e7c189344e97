import os
import subprocess
import sys
from pathlib import Path

import pytest

import testbed as tb

ROOT = Path(__file__).resolve().parents[2]


def small(**changes):
    fields = {
        "seed": 42, "inner_steps": 2, "target_outer_steps": 5, "horizon": 5_000_000, "heartbeat_period": 1000, "heartbeat_miss_threshold": 5,
        "base_latency": 100, "bandwidth_bpus": 10, "state_bytes": 100,
        "workers": [tb.WorkerSpec(id=i, inner_step_mean=1000) for i in range(4)],
    }  # fmt: skip
    return tb.Scenario(**{**fields, **changes})


def test_fields_are_what_the_schema_says():
    subprocess.run([sys.executable, str(ROOT / "python" / "tools" / "fields.py"), "--check"], check=True)


def test_the_whole_library_comes_back():
    entries = tb.library()
    assert len(entries) > 40
    for entry in entries:
        sc = tb.Scenario.library(entry.name)
        again = tb.Scenario.from_dict(sc.to_dict())
        assert again == sc, entry.name
        assert sc.description == entry.description


@pytest.mark.parametrize("name", ["persistent_straggler", "mixed_gpus", "three_regions", "charlm_regions", "lognormal_16"])
def test_a_scenario_plays_as_in_the_library(name):
    assert tb.simulate(tb.Scenario.library(name), "straggler", trace=False).data == tb.simulate(name, "straggler", trace=False).data


def test_builders():
    sc = small(injects=[tb.Slow(id=3, at=0, factor=10), tb.Crash(1, at=9000), tb.Partition([2], at=12_000), tb.ClearPartition(at=13_000)])
    sc.real.links.default = tb.Properties(rate_up="100mbit", one_way_delay="5ms")
    sc.real.links.pairs = [tb.PairPath(from_="w0", to="w1", one_way_delay="30ms")]
    sc.real.injects = [tb.Cut(at=100, until=200, from_="w0", to="w1"), tb.LinkChange(at=5, id=2, rate_up="1mbit"), tb.Flap(at=3, period=2000, down=500, until=9000, id=1)]
    sc.work = tb.Work(steps=tb.Steps(distribution="lognormal", sigma=0.3), classes=[tb.WorkerClass(name="t4", ids=[2, 3], factor=4.8)])
    sc.policy.straggler = None
    sc.validate()
    data = sc.to_dict()
    assert data["real"]["links"]["pairs"] == [{"from": "w0", "to": "w1", "one_way_delay": "30ms"}]
    assert data["injects"][0] == {"op": "Slow", "at": 0, "id": 3, "factor": 10}
    assert "join_at" not in data["workers"][0]
    assert tb.plan(sc).data["nodes"][1]["rate_up"] == "100mbit"


def test_times_have_units():
    plain = small(injects=[tb.Restart(0, at=4_000, after=2_000)])
    written = small(injects=[tb.Restart(0, at="4ms", after="2ms")], horizon="5s", heartbeat_period="1ms")
    assert tb.simulate(written, "baseline", trace=False).data == tb.simulate(plain, "baseline", trace=False).data


def test_one_error_names_all_problems():
    with pytest.raises(tb.UsageError) as err:
        small(inner_steps=0, horizon="1.5us", injects=[tb.Crash(9, at=1)]).validate()
    lines = str(err.value).splitlines()
    assert len(lines) == 3
    for field in ["inner_steps", "horizon", "injects[0].id"]:
        assert any(field in line for line in lines), field


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"inner_steps": 0}, "inner_steps"),
        ({"workers": []}, "workers"),
        ({"injects": [tb.Slow(id=9, at=0, factor=2)]}, "injects[0].id"),
        ({"injects": [tb.Slow(id=1, at=0, factor=-2)]}, "injects[0].factor"),
        ({"real": tb.Real(links=tb.Links(default=tb.Properties(rate_up="fast")))}, "real.links.default.rate_up"),
        ({"real": tb.Real(all_reduce=tb.AllReduce(bits=7))}, "real.all_reduce.bits"),
    ],
)
def test_one_error_names_the_field(change, says):
    with pytest.raises(tb.UsageError) as err:
        small(name="mine", **change).validate()
    assert says in str(err.value)
    assert str(err.value).startswith("mine:"), "the file that nobody has written is not named"


def test_a_field_that_is_not_there():
    with pytest.raises(tb.UsageError, match=r"workers\[0\].colour: unknown field"):
        tb.Scenario.from_dict({"workers": [{"id": 0, "inner_step_mean": 1, "colour": "red"}]})
    with pytest.raises(tb.UsageError, match="inner_steps, target_outer_steps"):
        tb.Scenario.from_dict({"seed": 1, "workers": []})
    with pytest.raises(TypeError):
        tb.WorkerSpec(id=0, inner_step_mean=1, colour="red")
    with pytest.raises(tb.UsageError, match="no scenario|nosuch"):
        tb.Scenario.library("nosuch")
    with pytest.raises(FileNotFoundError):
        tb.Scenario.from_file("nosuch.yaml")


def test_what_is_not_given_is_not_shown():
    assert repr(tb.WorkerSpec(id=3, inner_step_mean=1000)) == "WorkerSpec(id=3, inner_step_mean=1000)"
    assert repr(tb.Slow(id=3, at=0, factor=10)) == "Slow(op='Slow', at=0, id=3, factor=10)"


def test_files(own_folder):
    sc = small(name="mine", injects=[tb.Slow(id=3, at=0, factor=10)])
    for name in ("mine.json", "mine.yaml"):
        sc.to_file(name)
        assert tb.simulate(tb.Scenario.from_file(name), "straggler").wall_clock_us == 20_053
        assert tb.simulate(name, "straggler").wall_clock_us == 20_053
    assert "workers:" in Path("mine.yaml").read_text()
    assert sorted(os.listdir(own_folder)) == ["mine.json", "mine.yaml"], "nothing else is left"


def test_files_that_a_scenario_names(own_folder):
    folder = own_folder / "deep"
    folder.mkdir()
    (folder / "steps.txt").write_text("900\n1000\n1100\n")
    sc = small(work=tb.Work(steps=tb.Steps(distribution="trace", file="steps.txt")))
    sc.base = str(folder)
    first = tb.simulate(sc, "baseline")
    sc.to_file(folder / "mine.yaml")
    read = tb.Scenario.from_file("deep/mine.yaml")
    read.seed = sc.seed
    assert tb.simulate(read, "baseline").wall_clock_us == first.wall_clock_us
    assert sorted(os.listdir(folder)) == ["mine.yaml", "steps.txt"]


def test_numbers_of_numpy():
    numpy = pytest.importorskip("numpy")
    sc = small(workers=[tb.WorkerSpec(id=i, inner_step_mean=m) for i, m in enumerate(numpy.full(4, 1000))])
    assert tb.simulate(sc, "baseline").wall_clock_us == 11_050
