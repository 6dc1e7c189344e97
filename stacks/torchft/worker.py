"""Outer steps with torchft's Manager in its synchronous mode, as its DiLoCo class uses
it: inner steps, a quorum, the average, the vote on the commit.

A group that heals loads the donor's state, and with it the donor's share of the
average. So the donor counts twice, as in torchft, where a healed replica has the
donor's parameters.
"""

import logging
import os
import time
from datetime import timedelta
from importlib.metadata import version

import torch
from torch.distributed import TCPStore
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo

from testbed_stack import Model, Run, Vector

STORE_PORT = 29600
MANAGER_PORT = 29700
EPOCHS = 100_000  # quorum ids of a lighthouse that starts anew begin with 1


class Group(ProcessGroupGloo):
    """Gloo's process group. It knows the members of the quorum by their numbers."""

    members = ()

    def configure(self, *args):
        self.members = args[-1]
        super().configure(*args)


class Worker:
    def __init__(self, run):
        self.run, self.vector, self.model = run, Vector(run), Model(run)
        self.healed = None  # the time of the last load, until it is marked
        options = run.options
        own = run.address(run.node)
        # A restarted process finds ports of its former one in use.
        port = STORE_PORT + run.incarnation
        self.store = TCPStore(own, port, None, True, wait_for_workers=False)
        self.group = Group(timeout=timedelta(seconds=options["timeout_s"]))
        self.manager = Manager(
            pg=self.group, load_state_dict=self.load, state_dict=self.state, min_replica_size=int(options["min_replicas"]) or len(run.workers) // 2 + 1,
            use_async_quorum=False, timeout=timedelta(seconds=max(options["timeout_s"], 10)),
            quorum_timeout=timedelta(seconds=options["quorum_timeout_s"]), rank=0, world_size=1, store_addr=own, store_port=port,
            lighthouse_addr=run.await_announced("coordinator"), replica_id=run.node, port=MANAGER_PORT + run.incarnation, hostname=own,
            init_sync=bool(options["init_sync"]), quorum_retries=int(options["quorum_retries"]))

    def state(self):
        """What a donor sends: copies, because the donor goes on meanwhile."""
        return {"state": torch.from_numpy(self.model.state.copy()), "steps": self.model.steps, "share": torch.from_numpy(self.vector.data.copy())}

    def load(self, state):
        self.model.state, self.model.steps = state["state"].numpy().copy(), state["steps"]
        self.vector.data[:] = state["share"].numpy()
        self.healed = time.monotonic()

    def round(self):
        """Takes the inner steps of a round, and the outer step if all goes well."""
        run, model, vector, manager = self.run, self.model, self.vector, self.manager
        run.inner_steps(model.round)
        vector.fill(model.contribution(), model.round, run.spec["inner_steps"])
        began = time.monotonic()
        manager.start_quorum()
        run.mark("agreed", round=model.round, epoch=model.round * EPOCHS + manager._quorum_id % EPOCHS, world=manager.num_participants(),
                 members=[f"w{k}" for k in self.group.members], waited_us=_since(began))
        if self.healed:
            run.mark("fetch_end", round=model.round, bytes=model.state.nbytes, duration_us=int((self.healed - began) * 1e6), ok=True)
            self.healed = None
        began = time.monotonic()
        manager.allreduce(torch.from_numpy(vector.data)).wait()
        took = _since(began)
        committed, error = manager.should_commit(), manager.errored()
        if not committed:
            why = str(error.original_exception if error else "another worker or the quorum did not agree")
            run.mark("reduce_end", round=model.round, ok=False, error=why[:300], duration_us=took)
            return
        run.mark("reduce_end", round=model.round, ok=True, duration_us=took, world=manager.num_participants())
        model.step(vector.values())
        run.mark("commit", round=model.steps, epoch=manager._quorum_id, ok=True, lanes=vector.lanes(), hash=model.hash(), duration_us=took, tx=run.sent())


def _since(began):
    return int((time.monotonic() - began) * 1e6)


def play(run):
    logging.basicConfig(level=logging.WARNING)
    torch.set_num_threads(1)
    worker = Worker(run)
    run.ready(f"torchft {version('torchft')}, torch {torch.__version__}")
    finished = run.meeting("finished")
    while worker.model.steps < run.rounds:
        try:
            worker.round()
        except (RuntimeError, TimeoutError) as error:
            # Those who have finished ask for no further quorum.
            if not os.path.exists(finished):
                raise
            run.show(f"the others have finished: {error}")
            break
    run.announce(name="finished")
    run.mark("done", round=worker.model.steps)


run = Run()
run.main(play)
