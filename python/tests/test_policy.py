import json
import os
import runpy
import subprocess
import sys
import threading
from pathlib import Path
from typing import Annotated

import pytest

import testbed as tb
from testbed.policy import _Answerer

from .conftest import played

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "policies"


class Patience(tb.Policy):
    share: float = 0.75
    longer: Annotated[float, tb.Range(0.05, 4, log=True)] = 0.5

    def deadline(self, round):
        if round.deadline is None and round.arrived >= tb.share(self.share, len(round.members)):
            return tb.Deadline(round.now + int(self.longer * (round.now - round.start)), {"longer": self.longer})
        return None

    def enough(self, round):
        return round.overdue


def test_in_the_simulator():
    r = tb.simulate("persistent_straggler", Patience())
    assert r.policy == "Patience"
    assert [d.round for d in r.sidelined][:2] == [1, 2]
    assert r.sidelined[0].why["deadline"]["numbers"] == {"longer": 0.5}
    ab = tb.compare("persistent_straggler", ["baseline", Patience(longer=1), Patience(longer=0.1)], world="sim")
    assert ab.policies == ["baseline", "Patience:longer=1.0", "Patience:longer=0.1"]
    assert ab.speedup("Patience:longer=0.1") > ab.speedup("Patience:longer=1.0") > 1
    assert len(ab.sim["Patience:longer=1.0"].events) > 50
    assert not [n for n in os.listdir("/tmp") if n.startswith("testbed-") and os.path.exists("/tmp/%s/0/Patience" % n)], "sockets go"


def test_in_sweeps_and_searches():
    s = tb.sweep("lognormal_16", {"policy.program.longer": [0.1, 1]}, ["baseline", Patience()])
    walls = {(r["policy.program.longer"], r["policy"]): r["wall_clock_us"] for r in s.rows}
    assert walls[1, "Patience"] > walls[0.1, "Patience"]
    t = tb.tune("lognormal_16", ["baseline", Patience()], points=10, seeds=2, held_out=3)
    assert any(p["policy"].startswith("Patience:") and "longer=" in p["policy"] for p in t.front)


def test_on_a_real_network(real_network):
    heard = []
    r = played("persistent_straggler", Patience(longer=0.3), time_scale=100, progress=heard.append)
    assert r.complete and r.bit_identical and {d.worker for d in r.sidelined} == {3}
    assert heard[-1].policy == "Patience:longer=0.3" and heard[-1].done == 5


def test_a_file_is_a_program(own_folder):
    name = "program:" + str(EXAMPLES / "straggler.py").replace(":", "%3A")
    src = str(Path(tb.__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = src
    try:
        assert tb.simulate("persistent_straggler", name).wall_clock_us == 20_053
        assert tb.simulate("persistent_straggler", name + ":quorum=0.76").wall_clock_us == 92_050
        with pytest.raises(tb.UsageError, match=r"quorum is 2(\.0)?: it must lie in \(0, 1\]"):
            tb.simulate("persistent_straggler", name + ":quorum=2")
    finally:
        del os.environ["PYTHONPATH"]


@pytest.mark.parametrize("name", ["straggler", "backup", "deadline"])
def test_examples_decide_as_in_go(name):
    policy = runpy.run_path(str(EXAMPLES / (name + ".py")), run_name="example")[name.capitalize()]()
    for scenario in ("persistent_straggler", "lognormal_16", "spot_fleet", "churn_storm"):
        given = "".join(":%s=%s" % (n, json.dumps(getattr(policy, n))) for n in policy.parameters())  # not the scenario's own
        mine, theirs = tb.simulate(scenario, policy), tb.simulate(scenario, name + given)
        assert [(e.t, e.type, e.worker) for e in mine.events] == [(e.t, e.type, e.worker) for e in theirs.events], scenario


class Raises(tb.Policy):
    def enough(self, round):
        return 1 / 0


class Past(tb.Policy):
    def deadline(self, round):
        return round.start - 1


class Nonsense(tb.Policy):
    def deadline(self, round):
        return "soon"


class Hangs(tb.Policy):
    time_limit = 0.2

    def enough(self, round):
        threading.Event().wait(2)
        return True


@pytest.mark.parametrize(
    ("policy", "says"), [(Raises(), "ZeroDivisionError"), (Past(), "deadline at -1"), (Nonsense(), "soon"), (Hangs(), 'has not answered the question "enough" within 200ms')]
)
def test_what_goes_wrong(policy, says):
    with pytest.raises(tb.TestbedError) as err:
        tb.simulate("persistent_straggler", policy)
    assert says in str(err.value) and type(policy).__name__ in str(err.value)
    assert "/testbed-" not in str(err.value), "nobody has to know of the socket"
    if isinstance(policy, Raises):
        assert isinstance(err.value.__cause__, ZeroDivisionError)


def test_parameters():
    assert {n: p.described(n) for n, p in Patience.parameters().items()} == {
        "share": {"name": "share", "type": "float", "default": 0.75},
        "longer": {"name": "longer", "type": "float", "default": 0.5, "range": {"low": 0.05, "high": 4, "log": True}},
    }
    with pytest.raises(TypeError, match="no parameter patience; its parameters are share, longer"):
        Patience(patience=2)
    with pytest.raises(TypeError, match="longer is 'a lot': it must be of the type float"):
        Patience(longer="a lot")
    assert Patience(longer=1).longer == 1.0 and repr(Patience()) == "Patience(share=0.75, longer=0.5)"
    with pytest.raises(TypeError, match="is not a policy"):
        tb.simulate("persistent_straggler", Patience)


class Remembers(tb.Policy):
    def __init__(self):
        super().__init__()
        self.seen = []

    def closed(self, round):
        self.seen.append(round.number)


def test_each_run_begins_with_an_empty_memory():
    p = Remembers()
    a = _Answerer(p)
    ask = {"number": 1, "now_us": 5, "start_us": 0, "members": 1, "arrived": 1, "first_us": 5, "overdue": False}
    for _ in range(2):
        a.answer({"n": 1, "ask": "reset", "seed": 1, "min_slack_us": 0, "parameters": {}})
        a.answer({"n": 2, "ask": "closed", "round": ask, "members": [{"id": 0, "arrived_us": 5}]})
        assert a._policy.seen == [1]
    assert p.seen == []


def test_members_are_kept_from_question_to_question():
    seen = []

    class Sees(tb.Policy):
        def deadline(self, round):
            seen.append([(m.id, m.arrived, m.misses) for m in round.members])

    a = _Answerer(Sees())
    ask = {"number": 1, "now_us": 5, "start_us": 0, "members": 2, "arrived": 0, "overdue": False}
    a.answer({"n": 1, "ask": "reset", "seed": 1, "min_slack_us": 0, "parameters": {}})
    a.answer({"n": 2, "ask": "deadline", "round": ask, "members": [{"id": 1}, {"id": 0, "misses": 2}]})
    a.answer({"n": 3, "ask": "deadline", "round": ask, "members": [{"id": 1, "arrived_us": 4}]})
    a.answer({"n": 4, "ask": "deadline", "round": ask, "gone": [0]})
    assert seen == [[(0, None, 2), (1, None, 0)], [(0, None, 2), (1, 4, 0)], [(1, 4, 0)]]


def test_main_speaks_the_protocol(tmp_path):
    file = tmp_path / "p.py"
    file.write_text("import testbed as tb\nclass P(tb.Policy):\n    k: int = 3\n    def finishes_steps(self): return True\nP.main()\n")
    src = str(Path(tb.__file__).resolve().parents[1])
    out = subprocess.run(
        [sys.executable, str(file)], input='{"n":1,"ask":"hello","version":1}\n{"n":2,"ask":"finishes_steps"}\n', capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": src},
    ).stdout.splitlines()  # fmt: skip
    hello = json.loads(out[0])
    assert hello["name"] == "P" and hello["answers"] == ["finishes_steps"] and hello["parameters"][0]["name"] == "k"
    assert json.loads(out[1]) == {"finishes_steps": True, "n": 2}
