"""Outer steps with PCCL. All peers make the same calls in the same order, because
each decides by the number of peers alone.

Over several connections each part of the vector is a reduction of its own. Parts may
have different peers after a failure; the lanes at the head of each show which. Codes of
8 bits would spoil the lanes, so these are then a reduction of their own in float32,
and each part of the values is divided by the number of peers that PCCL reports.
"""

import time
from importlib.metadata import version

import numpy as np
from pccl import (
    Attribute, Communicator, DataType, PCCLError, QuantizationAlgorithm, QuantizationOptions, ReduceDescriptor, ReduceOp,
    ReduceOpDescriptor, ReduceOperandDescriptor, Result, SharedState, TensorInfo)

from testbed_stack import LANES, Model, Run, Vector

QUICK = 1.0  # an update that fails sooner found no master
FAILURES = 5  # such updates in a row, after which the master is taken for dead
QUANTISATION = [QuantizationAlgorithm.NONE, QuantizationAlgorithm.MIN_MAX, QuantizationAlgorithm.ZERO_POINT_SCALE]


class Peer:
    """A peer and its connections."""

    def __init__(self, run, state):
        self.run, self.state = run, state
        self.master = f"{run.address('coordinator')}:{run.await_announced('coordinator')}"
        self.connect()

    def connect(self):
        """Connects to the master. A peer that has just been voted in makes no vote on
        the topology in its first turn: the others are past theirs."""
        connections = int(self.run.options["connections"])
        self.communicator = Communicator(self.master, p2p_connection_pool_size=connections if connections > 1 else 0)
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


class Reduction:
    """Sums up the vector of all peers, and divides it by the number of contributors."""

    def __init__(self, run, model):
        self.model, self.connections = model, int(run.options["connections"])
        self.quantisation = QUANTISATION[int(run.options["quantisation"])]
        n = len(run.workers)
        # Whole slices for each connection, at least as many as there are workers.
        self.vector = Vector(run, self.connections * -(-n // self.connections))
        self.result = np.empty_like(self.vector.data)
        self.mean = np.empty_like(model.state)
        self.worlds = None  # peers of each part, if the lanes are apart

    def run(self, peer):
        """Leaves the mean values in mean, and the mean lanes in the vector. An error
        leaves what was to be sent as it was."""
        if self.quantisation is not QuantizationAlgorithm.NONE:
            self.run_quantised(peer)
        elif self.connections == 1:
            peer.communicator.all_reduce(self.vector.data, self.result, op=ReduceOp.SUM)
            self.divide()
        else:
            starts = self.vector.starts[:: self.vector.slices // self.connections]
            parts = list(zip(starts, starts[1:]))
            self.reduce(peer, [(self.vector.data[i:j], self.result[i:j]) for i, j in parts])
            self.divide()

    def alone(self):
        """The mean of the only peer."""
        self.result[:] = self.vector.data
        self.divide()
        self.worlds = None

    def divide(self):
        vector = self.vector
        vector.data[:] = self.result
        for start, end in zip(vector.starts, vector.starts[1:]):
            vector.data[start:end] /= vector.contributors(start)
        self.mean[:] = vector.values()

    def run_quantised(self, peer):
        values, lanes = self.model.contribution(), self.vector.data[: self.vector.block].copy()
        sums = np.empty_like(lanes)
        bounds = [k * len(values) // self.connections for k in range(self.connections + 1)]
        options = QuantizationOptions(DataType.UINT8, self.quantisation)
        worlds = reduce_quantised(peer, [(values[i:j], self.mean[i:j]) for i, j in zip(bounds, bounds[1:])], options)
        peer.communicator.all_reduce(lanes, sums, op=ReduceOp.SUM)
        for i, j, world in zip(bounds, bounds[1:], worlds):
            self.mean[i:j] /= world
        sums /= round(float(sums[::LANES].sum()))
        for start in self.vector.starts[:-1]:
            self.vector.data[start : start + self.vector.block] = sums
        self.worlds = worlds

    def reduce(self, peer, parts):
        """Sums up parts at the same time, each with a tag of its own."""
        operand, options = ReduceOperandDescriptor(DataType.FLOAT), QuantizationOptions(DataType.FLOAT, QuantizationAlgorithm.NONE)
        descriptors = [
            ReduceOpDescriptor.from_numpy(send, receive, ReduceDescriptor(len(send), ReduceOp.SUM, tag, operand, options))
            for tag, (send, receive) in enumerate(parts)]
        peer.communicator.all_reduce_multiple_with_retry(descriptors, max_in_flight=self.connections)


def reduce_quantised(peer, parts, options):
    """Sums up parts at the same time, and returns the number of peers of each. It tries
    again what failed, as all_reduce_multiple_with_retry does, which does not report
    these numbers."""
    worlds = [0] * len(parts)
    while not all(worlds):
        handles, error = [], None
        for tag, (send, receive) in enumerate(parts):
            if worlds[tag]:
                continue
            try:
                handles.append((tag, peer.communicator.all_reduce_async(send, receive, op=ReduceOp.SUM, tag=tag, quantization_options=options)))
            except PCCLError as failed:
                error = failed
        for tag, handle in handles:
            ok, status, info = handle.wait()
            if ok:
                worlds[tag] = info.local_world_size
            else:
                error = PCCLError(Result(status), "pcclAwaitAsyncReduce")
        if error and peer.world() < 2:
            raise error
    return worlds


def play(run):
    model = Model(run)
    reduction = Reduction(run, model)
    vector = reduction.vector
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
                reduction.run(peer)
                break
            except PCCLError as error:
                world = peer.world()
                run.mark("reduce_end", round=model.round, attempt=attempt, ok=False, error=str(error), world=world)
                if world < 2:
                    reduction.alone()
                    break
        took = int((time.monotonic() - began) * 1e6)
        run.mark("reduce_end", round=model.round, attempt=attempt, ok=True, duration_us=took)
        model.step(reduction.mean)
        state.revision = model.steps
        run.mark("commit", round=model.steps, attempt=attempt, epoch=model.steps, lanes=vector.lanes(), hash=model.hash(), duration_us=took, tx=run.sent(),
                 worlds=reduction.worlds)
    run.mark("done", round=model.steps)


run = Run()
run.main(play)
