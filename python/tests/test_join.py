import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import testbed as tb

numpy = pytest.importorskip("numpy")

TRAIN = """
import numpy as np
import testbed

run = testbed.join(size=4)
run.init(np.zeros(4, np.float32))
for r in run:
    params = r.params.copy()
    for _ in r.steps:
        loss = float(np.mean((params - run.worker) ** 2))
        params += 0.1 * (run.worker - params)
        r.done(loss)
    r.params = params
"""


def scenario(folder, *program):
    (folder / "train.py").write_text(TRAIN)
    sc = tb.Scenario.library("persistent_straggler")
    sc.base = str(folder)
    sc.real.parameters = None
    sc.train = tb.Train(task="program", program=list(program))
    return sc


def test_a_trainer_in_the_simulator(own_folder):
    sc = scenario(own_folder, sys.executable, "train.py")
    r = tb.simulate(sc, "baseline", network="links", train=True)
    assert len({x.model_hash for x in r.rounds}) == 5 and r.rounds[-1].loss.train < r.rounds[0].loss.train


@pytest.mark.parametrize(("passed", "works"), [("", False), (", pass_fds=[int(os.environ[n]) for n in ('TESTBED_SOCKET', 'TESTBED_MEMORY')]", True)])
def test_a_launcher_that_closes_descriptors(own_folder, passed, works):
    (own_folder / "launch.py").write_text("import os, subprocess, sys\nsys.exit(subprocess.run([sys.executable, 'train.py']%s).returncode)\n" % passed)
    sc = scenario(own_folder, sys.executable, "launch.py")
    if works:
        assert tb.simulate(sc, "baseline", network="links", train=True).complete
        return
    with pytest.raises(tb.TestbedError, match="closes inherited descriptors.*pass_fds"):
        tb.simulate(sc, "baseline", network="links", train=True)


def test_flat():
    class Tensor:  # as torch's, of a type that numpy does not have
        def detach(self):
            return self

        cpu = detach

        def numpy(self):
            raise TypeError("Got unsupported ScalarType BFloat16")

        def float(self):
            wide = Tensor()
            wide.numpy = lambda: numpy.array([[1.5, 2.5]], dtype=numpy.float32)
            return wide

    assert tb.flat(Tensor()).tolist() == [1.5, 2.5]
    both = tb.flat([Tensor(), numpy.arange(3, dtype=numpy.float64)])
    assert both.dtype == numpy.float32 and both.tolist() == [1.5, 2.5, 0, 1, 2]


def alone(folder, code):
    (folder / "alone.py").write_text(code)
    env = {k: v for k, v in os.environ.items() if not k.startswith("TESTBED_")}
    env["PYTHONPATH"] = str(Path(tb.__file__).parent.parent)
    return subprocess.run([sys.executable, "alone.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=60)


def test_a_worker_alone(own_folder):
    code = TRAIN.replace("join(size=4)", "join(size=4, validate=lambda p: float(p.sum()), standalone={'rounds': 2, 'inner_steps': 3})")
    code = code.replace("(params - run.worker)", "(params - 1)").replace("(run.worker - params)", "(1 - params)")
    code = code.replace("    r.params = params", "    assert r.state == (None if r.number == 1 else {'round': 1})\n    r.state = {'round': r.number}\n    r.params = params")
    done = alone(own_folder, code)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and lines[0].startswith("round 1: training loss ") and "validation loss" in lines[1], lines
    first, second = (float(line.split("training loss ")[1].split(",")[0]) for line in lines)
    assert second < first


def test_alone_is_asked_for(own_folder):
    done = alone(own_folder, TRAIN)
    assert done.returncode != 0 and "standalone=True" in done.stderr


def test_a_long_state_needs_no_words(own_folder):
    state = "    r.state = b'x' * (64 * 1024 + 200)\n    r.params = params"
    sc = scenario(own_folder, sys.executable, "train.py")
    (own_folder / "train.py").write_text(TRAIN.replace("    r.params = params", state))
    assert tb.simulate(sc, "baseline", network="links", train=True).complete


RATE = re.search(r"```python\n(def rate.*?)\n\nfor r in run", (Path(__file__).parents[2] / "docs" / "trainer.md").read_text(encoding="utf-8"), re.S)


def test_the_learning_rate_of_the_docs():
    names = {"math": math}
    assert RATE is not None
    exec(RATE[1], names)  # noqa: S102

    class Of:
        inner_steps, rounds, number = 10, 5, 1

    run = Of()
    rates = []
    for n in range(1, 6):
        r = Of()
        r.number = n
        rates += [names["rate"](run, r, step, highest=1.0, warmup=5) for step in range(1, 11)]
    assert rates[4] == 1.0 and rates == rates[:5] + sorted(rates[5:], reverse=True) and rates[-1] == pytest.approx(0) and rates[0] == 0.2


def test_a_sweep_starts_a_program_once(own_folder):
    """Where the program takes one run after another, each point learns what it does in new processes."""
    body = TRAIN[TRAIN.index("run.init") :].replace("np.zeros(4, np.float32)", "np.full(4, run.seed, np.float32), validate=lambda p: float(p[0])")
    sc = tb.Scenario.library("persistent_straggler")
    sc.base, sc.real.parameters = str(own_folder), None
    sc.workers = sc.workers[:3]
    sc.injects = [tb.Slow(id=2, at=0, factor=4)]
    sc.target_outer_steps = 3
    sc.train = tb.Train(task="program", program=[sys.executable, "train.py"])

    def sweep(first):
        text = "import numpy as np\nimport os\nimport testbed\nopen('starts', 'a').write('once\\n')\n%s\n" % first
        (own_folder / "train.py").write_text(text + "".join("    " + line + "\n" for line in body.splitlines()))
        rows = tb.sweep(sc, {"inner_steps": [2, 3]}, ["baseline", "straggler"], seeds=(1, 2), train=True).rows
        starts = (own_folder / "starts").read_text().count("once")
        (own_folder / "starts").unlink()
        return sorted(rows, key=str), starts

    afresh, many = sweep("run = testbed.join(size=4)\nif True:")
    warm, few = sweep("for run in testbed.runs(size=4):")
    assert len(warm) == 8 and warm == afresh and all(row["loss"] for row in warm)
    assert many == 5 * 8  # the first call, three workers, and one that validates
    assert few <= 4 * (os.cpu_count() or 1)  # points are played side by side
