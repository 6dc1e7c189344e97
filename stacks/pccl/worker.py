"""Outer steps with PCCL. All peers make the same calls in the same order, because
each decides by the number of peers alone."""

import time
from importlib.metadata import version

import numpy as np
from pccl import Attribute, Communicator, PCCLError, ReduceOp, SharedState, TensorInfo

from testbed_stack import Model, Run, Vector

QUICK = 1.0  # an update that fails sooner found no master
FAILURES = 5  # such updates in a row, after which the master is taken for dead


class Peer:
    """A peer and its connections."""

    def __init__(self, run, state):
        self.run, self.state = run, state
        self.master = f"{run.address('coordinator')}:{run.await_announced('coordinator')}"
        self.connect()

    def connect(self):
        """Connects to the master. A peer that has just been voted in makes no vote on
        the topology in its first turn: the others are past theirs."""
        self.communicator = Communicator(self.master)
        self.communicator.connect(n_attempts=int(self.run.options["attempts"]))
        self.new = True

    def world(self):
        return self.communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE)

    def admit(self):
        """Votes newcomers in."""
        failures = 0
        while not self.new:
            began = time.monotonic()
            try:
                self.communicator.update_topology()
                return
            except PCCLError as error:
                failures = failures + 1 if time.monotonic() - began < QUICK else 0
                if failures >= FAILURES:
                    self.run.mark("reduce_end", round=self.state.revision + 1, ok=False, error=str(error))
                    self.communicator = None  # its connections end before new ones begin
                    self.connect()
                time.sleep(0.05)
        self.new = False


def play(run):
    vector, model = Vector(run), Model(run)
    result = np.empty_like(vector.data)
    state = SharedState([TensorInfo.from_numpy(model.state, "outer")])
    peer = Peer(run, state)
    first = run.incarnation == 0 and run.node in run.spec["initial"]
    if first:
        while peer.world() < len(run.spec["initial"]):
            peer.admit()
            time.sleep(0.02)
        peer.new = True  # nobody votes again before the first round, whoever came last
        run.ready("pypccl " + version("pypccl"))
    joined, attempt = False, 0
    while model.steps < run.rounds:
        peer.admit()
        if peer.world() < 2:
            time.sleep(0.05)
            continue
        if not joined:
            run.mark("joined", round=model.round)
            joined = True
        began = time.monotonic()
        try:
            info = peer.communicator.sync_shared_state(state)
        except PCCLError as error:
            run.mark("reduce_end", round=model.round, ok=False, error=str(error))
            continue
        model.steps = state.revision
        if info.rx_bytes:
            run.mark("fetch_end", round=model.round, bytes=info.rx_bytes, duration_us=int((time.monotonic() - began) * 1e6), ok=True)
        if model.steps >= run.rounds:
            break
        run.inner_steps(model.round)
        vector.fill(model.contribution(), model.round, run.spec["inner_steps"])
        while True:
            attempt += 1
            began = time.monotonic()
            try:
                peer.communicator.all_reduce(vector.data, result, op=ReduceOp.SUM)
                break
            except PCCLError as error:
                world = peer.world()
                run.mark("reduce_end", round=model.round, attempt=attempt, ok=False, error=str(error), world=world)
                if world < 2:
                    result[:] = vector.data
                    break
        took = int((time.monotonic() - began) * 1e6)
        vector.data[:] = result
        vector.data /= vector.contributors()
        run.mark("reduce_end", round=model.round, attempt=attempt, ok=True, duration_us=took)
        model.step(vector.values())
        state.revision = model.steps
        run.mark("commit", round=model.steps, attempt=attempt, epoch=model.steps, lanes=vector.lanes(), hash=model.hash(), duration_us=took, tx=run.sent())
    run.mark("done", round=model.steps)


run = Run()
run.main(play)
