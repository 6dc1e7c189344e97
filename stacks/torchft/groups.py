"""A replica group of torchft, for all adapters: its store, its process group, its
manager."""

import time
from datetime import timedelta

from torch.distributed import TCPStore
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo

STORE_PORT = 29600
MANAGER_PORT = 29700
EPOCHS = 100_000  # quorum ids of a lighthouse that starts anew begin with 1


class Group(ProcessGroupGloo):
    """Gloo's process group. It knows the members of the quorum by their numbers."""

    members = ()

    def configure(self, *args):
        self.members = args[-1]
        super().configure(*args)


class Member:
    """A replica group with its marks. load and state are functions as Manager wants
    them; kind is the class of the manager."""

    def __init__(self, run, load, state, kind=Manager):
        self.run, options = run, run.options
        self.healed = None  # the time of the last load, until it is marked
        own = run.address(run.node)
        # A restarted process finds ports of its former one in use.
        port = STORE_PORT + run.incarnation
        self.store = TCPStore(own, port, None, True, wait_for_workers=False)
        self.group = Group(timeout=timedelta(seconds=options["timeout_s"]))
        self.manager = kind(
            pg=self.group, load_state_dict=load, state_dict=state, min_replica_size=int(options["min_replicas"]) or len(run.workers) // 2 + 1,
            use_async_quorum=False, timeout=timedelta(seconds=max(options["timeout_s"], 10)),
            quorum_timeout=timedelta(seconds=options["quorum_timeout_s"]), rank=0, world_size=1, store_addr=own, store_port=port,
            lighthouse_addr=run.await_announced("coordinator"), replica_id=run.node, port=MANAGER_PORT + run.incarnation, hostname=own,
            init_sync=bool(options["init_sync"]), quorum_retries=int(options["quorum_retries"]))

    def mark_quorum(self, model, began):
        """Marks the quorum that was asked for at began, and what was loaded with it."""
        run, manager = self.run, self.manager
        run.mark("agreed", round=model.round, epoch=model.round * EPOCHS + manager._quorum_id % EPOCHS, world=manager.num_participants(),
                 members=[f"w{k}" for k in self.group.members], waited_us=since(began))
        if self.healed:
            run.mark("fetch_end", round=model.round, bytes=model.state.nbytes, duration_us=int((self.healed - began) * 1e6), ok=True)
            self.healed = None

    def mark_reduction(self, model, committed, took):
        if committed:
            self.run.mark("reduce_end", round=model.round, ok=True, duration_us=took, world=self.manager.num_participants())
            return
        error = self.manager.errored()
        why = str(error.original_exception if error else "another worker or the quorum did not agree")
        self.run.mark("reduce_end", round=model.round, ok=False, error=why[:300], duration_us=took)

    def mark_commit(self, model, lanes, took):
        self.run.mark("commit", round=model.steps, epoch=self.manager._quorum_id, ok=True, lanes=lanes, hash=model.hash(), duration_us=took, tx=self.run.sent())


def since(began):
    return int((time.monotonic() - began) * 1e6)
