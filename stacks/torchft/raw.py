"""Outer steps with torchft's Manager in its synchronous mode, as its DiLoCo class uses
it: inner steps, a quorum, the average, the vote on the commit.

A group that heals loads the donor's state, and with it the donor's share of the
average. So the donor counts twice, as in torchft, where a healed replica has the
donor's parameters.
"""

import time

import torch

from groups import Member, since
from testbed_stack import Model, Vector


class Worker:
    def __init__(self, run):
        self.run, self.vector, self.model = run, Vector(run), Model(run)
        self.member = Member(run, self.load, self.state)

    def state(self):
        """What a donor sends: copies, because the donor goes on meanwhile."""
        return {"state": torch.from_numpy(self.model.state.copy()), "steps": self.model.steps, "share": torch.from_numpy(self.vector.data.copy())}

    def load(self, state):
        self.model.state, self.model.steps = state["state"].numpy().copy(), state["steps"]
        self.vector.data[:] = state["share"].numpy()
        self.member.healed = time.monotonic()

    def round(self):
        """Takes the inner steps of a round, and the outer step if all goes well."""
        run, model, vector, member, manager = self.run, self.model, self.vector, self.member, self.member.manager
        run.inner_steps(model.round)
        vector.fill(model.contribution(), model.round, run.spec["inner_steps"])
        began = time.monotonic()
        manager.start_quorum()
        member.mark_quorum(model, began)
        began = time.monotonic()
        manager.allreduce(torch.from_numpy(vector.data)).wait()
        took = since(began)
        committed = manager.should_commit()
        member.mark_reduction(model, committed, took)
        if committed:
            model.step(vector.values())
            member.mark_commit(model, vector.lanes(), took)
