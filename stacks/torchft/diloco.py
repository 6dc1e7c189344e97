"""Outer steps with torchft's DiLoCo class.

DiLoCo averages pseudo-gradients: the parameters after the last outer step minus those
after the inner steps. The module has one parameter, as long as the vector with the
lanes. The last inner step of a round subtracts the vector from it, so that the
pseudo-gradient is the vector. The outer step leaves the lanes of the parameter 0.
Subtracting from 0 is exact, so the lanes come out of the average as with the raw
Manager.

A group that heals loads the donor's parameter, with its inner steps. So the donor
counts twice.
"""

import time

import torch
from torchft.local_sgd import DiLoCo
from torchft.manager import Manager

from groups import Member, since
from testbed_stack import Model, Vector


class WatchedManager(Manager):
    """A manager that marks what DiLoCo does with it."""

    worker = None

    def start_quorum(self, *args, **options):
        began = time.monotonic()
        super().start_quorum(*args, **options)
        self.worker.member.mark_quorum(self.worker.model, began)

    def allreduce(self, *args, **options):
        self.worker.began = time.monotonic()
        return super().allreduce(*args, **options)

    def should_commit(self, *args, **options):
        worker = self.worker
        worker.took = since(worker.began)
        worker.committed = super().should_commit(*args, **options)
        worker.member.mark_reduction(worker.model, worker.committed, worker.took)
        return worker.committed


class Outer(torch.optim.SGD):
    """The outer optimiser. It takes the lanes out of the average."""

    worker = None

    def step(self, closure=None):
        average, vector = self.worker.module.parameter.grad, self.worker.vector
        vector.data[:] = average.numpy()
        for start in vector.starts[:-1]:
            average[start : start + vector.block] = 0
        return super().step(closure)


class Module(torch.nn.Module):
    def __init__(self, length):
        super().__init__()
        self.parameter = torch.nn.Parameter(torch.zeros(length))


class Worker:
    def __init__(self, run):
        self.run, self.vector, self.model = run, Vector(run), Model(run)
        self.module = Module(self.vector.length)
        self.inner = torch.optim.SGD(self.module.parameters(), lr=1.0)
        outer = Outer(self.module.parameters(), lr=1.0)
        outer.worker = self
        self.began, self.took, self.committed = time.monotonic(), 0, False
        self.member = Member(run, self.load, self.state, WatchedManager)
        self.member.manager.worker = self
        self.steps = run.spec["inner_steps"]
        self.diloco = DiLoCo(self.member.manager, [self.module], self.inner, outer, sync_every=self.steps)
        self.diloco.__enter__()  # until the end of the process

    def state(self):
        """What a donor sends besides DiLoCo's own state: copies, because the donor goes
        on meanwhile."""
        return {"parameter": self.module.parameter.detach().clone(), "steps": self.model.steps}

    def load(self, state):
        with torch.no_grad():
            self.module.parameter.copy_(state["parameter"])
        self.model.steps = state["steps"]
        self.member.healed = time.monotonic()

    def round(self):
        """Takes the inner steps of a round, and the outer step if all goes well."""
        run, model, vector, parameter = self.run, self.model, self.vector, self.module.parameter
        run.inner_steps(model.round)
        vector.fill(model.contribution(), model.round, self.steps)
        for step in range(1, self.steps + 1):
            parameter.grad = torch.from_numpy(vector.data.copy()) if step == self.steps else None
            self.inner.step()  # the last one reduces
        if not self.committed:
            return
        lanes = vector.lanes()  # of the average
        vector.data[:] = parameter.detach().numpy()
        model.state, model.steps = vector.values(), model.steps + 1
        self.member.mark_commit(model, lanes, self.took)
