import pytest

import testbed as tb

from .conftest import played


def test_events():
    r = tb.simulate("persistent_straggler", "straggler")
    assert r.wall_clock_us == 20_053 and r.complete and r.outer_steps == 5
    assert [(d.round, d.worker) for d in r.sidelined] == [(2, 3), (3, 3)]
    assert [(d.round, d.worker, d.reason) for d in r.evicted] == [(4, 3, "straggler")]
    assert r.evicted[0].why["misses"] == 3
    evict = r.events.of_type("evict")[0]
    assert (evict.worker, evict.round, evict.reason["rule"]) == (3, 4, "straggler")
    with pytest.raises(AttributeError, match="duration"):
        evict.duration  # noqa: B018
    assert [x.t for x in r.events] == sorted(x.t for x in r.events)
    assert r.rounds[1].participants == [0, 1, 2] and r.rounds[1].late == [3]


def test_no_events_if_not_asked_for():
    r = tb.simulate("persistent_straggler", "straggler", trace=False)
    with pytest.raises(tb.TestbedError, match="trace=True"):
        len(r.events)


def test_frames():
    pytest.importorskip("pandas")
    r = tb.simulate("persistent_straggler", "straggler")
    rounds = r.to_frame()
    assert list(rounds["round"]) == [1, 2, 3, 4, 5]
    assert rounds["end_us"].iloc[-1] == 20_053
    workers = r.to_frame("worker")
    assert len(workers[workers["round"] == 1]) == 4
    first = workers[(workers["round"] == 1) & (workers["worker"] == 3)].iloc[0]
    assert (first["steps"], first["compute_us"], first["began_us"], first["arrived_us"]) == (2, 11_000, 0, 11_100)
    assert not workers[(workers["round"] == 2) & (workers["worker"] == 3)]["participant"].any()
    events = r.to_frame("event")
    assert len(events) == len(r.events)
    assert events["worker"].dtype == "Int64"
    with pytest.raises(ValueError, match='"round", "worker" or "event"'):
        r.to_frame("month")


def test_comparison():
    pytest.importorskip("pandas")
    ab = tb.compare("persistent_straggler", ["baseline", "straggler:k=5"], world="sim", repeat=3)
    assert ab.policies == ["baseline", "straggler:k=5"]
    assert round(ab.speedup(), 2) == 4.59
    assert ab.speedup(world="sim") == ab.data["statistics"]["speedup"]["sim"]["median"]
    frame = ab.to_frame()
    assert len(frame) == 2 * 2 * 3 and set(frame["world"]) == {"sim", "sim_links"} and set(frame["seed"]) == {42, 43, 44}
    assert len(ab.sim["straggler:k=5"].events) == 86
    assert all(len(r.events) for _, r in ab.results())
    assert ab.valid and not ab.real
    page = ab.report()
    assert page.read_text().startswith("<!")
    assert repr(tb.load(ab.dir)) == repr(ab)
    assert "4.59" in tb.load(ab.dir)._repr_html_() or "4.03" in tb.load(ab.dir)._repr_html_()


def test_names_of_worlds():
    ab = tb.compare("persistent_straggler", world="sim")
    assert {(w, r.world_name) for w, r in ab.results()} == {("sim", "sim"), ("sim_links", "sim_links")}
    old = dict(ab.sim_links["baseline"].data)
    del old["world_name"]  # as older programs wrote it
    assert tb.Result(old).world_name == "sim_links"
    decisions = ab.sim["straggler"].evicted
    assert [d.worker for d in decisions] == [d["worker"] for d in ab.data["sim"]["straggler"]["evicted"]] == [3]
    older = dict(ab.sim["straggler"].data, evicted=[{"round": 3, "id": 3, "reason": "straggler"}])
    assert [d.worker for d in tb.Result(older).evicted] == [3]


def test_errors_say_where():
    sc = tb.Scenario.library("homogeneous")
    sc.inner_steps = -1
    with pytest.raises(tb.UsageError) as caught:
        tb.simulate(sc, "baseline")
    assert caught.value.field == "inner_steps" and caught.value.fix == "it must not be negative" and caught.value.line


def test_sweep_and_tune():
    pytest.importorskip("pandas")
    heard = []
    s = tb.sweep("persistent_straggler", {"policy.straggler.k": [1, 3], "inner_steps": [2, 4]}, seeds=(1, 2), progress=heard.append)
    frame = s.to_frame()
    assert set(frame["world_name"]) == {"sim"}
    assert len(frame) == 2 * 2 * 2 * 2 and set(frame["inner_steps"]) == {2, 4}
    assert heard[-1].done == heard[-1].of == 16
    assert "speed-up" in s._repr_html_() and s.report().exists()
    t = tb.tune("lognormal_16", ["baseline", "straggler"], points=20, seeds=2, held_out=3)
    walls = [p["wall_clock_us"] for p in t.front]
    assert walls == sorted(walls) and len(t.to_frame()) == len(t.front)
    with pytest.raises(tb.UsageError, match="list of values"):
        tb.sweep("persistent_straggler", {"inner_steps": 2})


def test_pictures():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    ab = tb.compare("persistent_straggler", world="sim")
    ax = ab.sim["straggler"].plot()
    assert len(ax.get_yticks()) == 4 and {t.get_text() for t in ax.get_legend().get_texts()} == {"inner steps", "all-reduce", "sidelined", "evicted"}
    assert {t.get_text() for t in ab.plot().get_legend().get_texts()} == {"baseline", "straggler"}
    assert len(ab.plot("wall-clock").patches) == 4
    with pytest.raises(ValueError, match="validation loss"):
        ab.sim["straggler"].plot("loss")
    with pytest.raises(ValueError, match='"timeline" or "loss"'):
        ab.sim["straggler"].plot("pie")


def test_losses():
    sc = tb.Scenario.library("charlm_straggler")
    sc.target_outer_steps = 3
    r = tb.simulate(sc, "baseline", network="links", train=True)
    assert len(r.losses) >= 2 and r.losses[-1][1] < r.losses[0][1]
    assert r.rounds[0].model_hash


def test_replay(real_network):
    r = played("persistent_straggler", "straggler", time_scale=100)
    assert r.complete and r.bit_identical and r.world == "real"
    assert len(r.events.of_type("reduced")) > 10
    again = tb.replay(r.dir, "straggler")
    assert again.same is True and again.differences == []
    other = tb.replay(r.dir, "straggler", set={"policy.straggler.quorum": 1})
    assert other.same is False


def test_other_verbs():
    assert tb.estimate(numNodes=32, bandwidthMbps=500).inputs["numNodes"] == 32
    assert tb.plan("persistent_straggler").nodes[0]["name"] == "coordinator"
    with pytest.raises(tb.UsageError, match="nosuch"):
        tb.simulate("nosuch", "baseline")
    with pytest.raises(tb.UsageError, match="nosuch"):
        tb.simulate("persistent_straggler", "nosuch")
    with pytest.raises(tb.UsageError):
        tb.load(".")
    assert tb.version() == tb.__version__
