"""An elastic loop around gloo. The loop is ours; the collective is gloo's.

Workers meet in generations. Whoever needs a new group asks for the next generation
in the store. The generation closes when all members of the last one have asked, or
when nobody has asked for a while. Members learn from a lane of the average that
somebody waits for the next generation.
"""

import gc
import time
from datetime import timedelta

import numpy as np
import torch
from torch.distributed import PrefixStore, TCPStore
from torch.distributed.distributed_c10d import AllreduceOptions, BroadcastOptions, ProcessGroupGloo, ReduceOp

from testbed_stack import Model, Run, Vector

PATIENCE = 60  # seconds to wait for somebody who holds the outer state


class Over(Exception):
    """The others have finished."""


class Store:
    """The store on the coordinator's node. No call waits for a key."""

    def __init__(self, run):
        port = int(run.await_announced("coordinator"))
        self.tcp = TCPStore(run.address("coordinator"), port, None, False, timedelta(seconds=60), wait_for_workers=False)

    def count(self, key, by=0):
        return self.tcp.add(key, by)

    def set(self, key, value):
        self.tcp.set(key, str(value))

    def read(self, key):
        """The value, or None. A store answers the expected value for a missing key."""
        value = self.tcp.compare_set(key, "-", "-").decode()
        return None if value == "-" else value

    def decide(self, key, value):
        """The first value that anybody decides on."""
        return self.tcp.compare_set(key, "", str(value)).decode()


class Group:
    """The members of a generation, as (node, outer steps, whether it has steps to
    contribute, process)."""

    def __init__(self, run, store, generation, members):
        self.generation = generation
        self.members = sorted(members, key=lambda m: run.workers.index(m[0]))
        self.nodes = [node for node, *_ in self.members]
        self.rank = self.nodes.index(run.node)
        self.gloo = None
        if len(members) > 1:
            self.gloo = ProcessGroupGloo(
                PrefixStore(f"gloo{generation}", store.tcp), self.rank, len(members), timedelta(seconds=run.options["timeout_s"]))

    def sum(self, tensor):
        if self.gloo:
            options = AllreduceOptions()
            options.reduceOp = ReduceOp.SUM
            self.gloo.allreduce([tensor], options).wait()

    def send_state(self, tensor, root):
        options = BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        self.gloo.broadcast([tensor], options).wait()

    def close(self):
        """Ends the connections, so that neighbours that still wait fail at once."""
        self.gloo = None
        gc.collect()


def members_of(store, generation, count):
    members = []
    for k in range(1, count + 1):
        text = store.read(f"{generation}/m{k}")
        while text is None:  # it has been counted, and is about to write it
            time.sleep(0.01)
            text = store.read(f"{generation}/m{k}")
        node, steps, pending, process = text.split()
        members.append((node, int(steps), pending == "1", process))
    return members


def meet(run, store, model, pending):
    """Waits for the next generation, and returns its group."""
    began = time.monotonic()
    while True:
        latest = int(store.read("latest") or 0)
        generation = latest + 1
        old = set((store.read(f"{latest}/nodes") or "").split())
        place = store.count(f"{generation}/n", 1)
        store.set(f"{generation}/m{place}", f"{run.node} {model.steps} {int(pending)} {run.node}.{run.incarnation}")
        closed = close(run, store, generation, place, old)
        if place > closed:
            continue
        members = {}
        for m in members_of(store, generation, closed):
            members[m[0]] = m  # of a node that has asked twice, the last process counts
        members = list(members.values())
        store.set(f"{generation}/nodes", " ".join(m[3] for m in members))
        run.mark("agreed", round=top(members) + 1, epoch=generation, world=len(members), members=[m[0] for m in members],
                 waited_us=int((time.monotonic() - began) * 1e6))
        try:
            return Group(run, store, generation, members)
        except RuntimeError as error:  # a member has died meanwhile
            run.mark("reduce_end", round=model.round, ok=False, error=str(error)[:300], world=len(members))


def top(members):
    """The most outer steps that any member has taken."""
    return max(steps for _, steps, *_ in members)


def close(run, store, generation, place, old):
    """Waits until a generation is closed, and returns how many it has."""
    seen, since = 0, time.monotonic()
    began = since
    while True:
        closed = store.read(f"{generation}/closed")
        if closed is not None:
            return int(closed)
        count = store.count(f"{generation}/n")
        if count != seen:
            seen, since = count, time.monotonic()
        asked = members_of(store, generation, count)
        nodes, processes = {m[0] for m in asked}, {m[3] for m in asked}
        committed = int(store.read("committed") or 0)
        # Until a member of the last group asks, the group may still train.
        holds = top(asked) >= committed and (not old or bool(processes & old))
        quiet = time.monotonic() - since
        if not holds and committed >= run.rounds:
            raise Over
        if not holds and time.monotonic() - began > PATIENCE:
            raise RuntimeError(f"no worker that asks for generation {generation} has the outer state after round {committed}")
        everybody = processes >= old if old else nodes >= set(run.spec["initial"])
        waits = run.options["quiet_s"] * (1 if place == 1 else 3)  # the first one decides, if it lives
        if holds and (place == 1 and everybody or quiet >= waits):
            closed = store.decide(f"{generation}/closed", count)
            store.set("latest", generation)
            return int(closed)
        time.sleep(0.02)


def heal(run, store, group, model):
    """Brings members that are behind to the outer state of the others."""
    steps, newest = [m[1] for m in group.members], top(group.members)
    if min(steps) == newest:
        return False
    root = steps.index(newest)
    began = time.monotonic()
    state = torch.from_numpy(model.state.copy())  # a failure leaves a part of it
    group.send_state(state, root)
    if model.steps == newest:
        return False
    model.state, model.steps = state.numpy(), newest
    run.mark("fetch_end", round=model.round, **{"from": group.nodes[root]}, bytes=state.numel() * 4,
             duration_us=int((time.monotonic() - began) * 1e6), ok=True)
    return True


def play(run):
    torch.set_num_threads(1)
    vector, model = Vector(run), Model(run)
    lanes = vector.data  # shared with the tensor
    flag = np.zeros(1, np.float32)
    buffer = torch.zeros(vector.length + 1)
    store = Store(run)
    run.ready("torch " + torch.__version__)
    group, pending, attempt = None, False, 0
    while model.steps < run.rounds:
        try:
            if group is None:
                group = meet(run, store, model, pending)
                newest = top(group.members)
                if heal(run, store, group, model):
                    pending = False
                # Others have steps to contribute: who has none yet contributes nothing.
                empty = not pending and any(m[2] for m in group.members if m[1] == newest)
            if not pending and not empty:
                run.inner_steps(model.round)
                pending = True
            elif not pending:
                run.arrive(model.round, 0)
            steps = run.spec["inner_steps"] if pending else 0
            vector.fill(model.contribution(), model.round, steps)
            flag[0] = store.count(f"{group.generation + 1}/n") > 0
            buffer[:-1] = torch.from_numpy(lanes)
            buffer[-1] = float(flag[0])
            attempt += 1
            began = time.monotonic()
            group.sum(buffer)
        except Over:
            break
        except RuntimeError as error:
            if group is None:
                raise
            run.mark("reduce_end", round=model.round, attempt=attempt, ok=False, error=str(error)[:300], world=len(group.nodes))
            group.close()
            group = None
            continue
        lanes[:] = buffer[:-1].numpy()
        lanes /= max(1, vector.contributors())
        took = int((time.monotonic() - began) * 1e6)
        run.mark("reduce_end", round=model.round, attempt=attempt, ok=True, duration_us=took, world=len(group.nodes))
        model.step(vector.values())
        pending = empty = False
        store.set("committed", model.steps)
        run.mark("commit", round=model.steps, attempt=attempt, epoch=group.generation, ok=True, lanes=vector.lanes(), hash=model.hash(),
                 duration_us=took, tx=run.sent())
        if float(buffer[-1]) > 0 and model.steps < run.rounds:
            group.close()
            group = None
    run.mark("done", round=model.steps)


run = Run()
run.main(play)
