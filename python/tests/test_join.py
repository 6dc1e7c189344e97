import sys

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
    with pytest.raises(tb.TestbedError, match="closes what it inherits.*pass_fds"):
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
