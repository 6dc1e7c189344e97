"""Outer steps by hivemind's DecentralizedAverager.

The averager knows no rounds. Peers tell each other theirs while they look for a group.
Whoever finds that it is behind takes the state of a peer that is ahead.
"""

import os
import time

import torch

import hivemind
from hivemind.averaging import DecentralizedAverager
from hivemind.p2p import P2P

from testbed_stack import Model, Run, Vector

# The node's own memory: files in /tmp would stay when the node is gone.
P2P._UNIX_SOCKET_PREFIX = "/unix/dev/shm/hivemind-"

PORT = 31338
FAILURES = 8  # in a row, after which a worker gives up
LINGER = 10  # seconds for which a finished worker serves the others
STATE_TIMEOUT = 60


class Averager(DecentralizedAverager):
    """Serves the outer state in place of the averaged vector."""

    model = None

    def get_current_state(self):
        return {"steps": self.model.steps}, [torch.from_numpy(self.model.state.copy())], None


def start(run, model, vector):
    own = run.address(run.node)
    dht = hivemind.DHT(
        initial_peers=[run.await_announced("coordinator")], host_maddrs=[f"/ip4/{own}/tcp/{PORT + run.incarnation}"], start=True,
        use_relay=False, auto_nat=False, nat_port_map=False, startup_timeout=120)
    Averager.model = model
    averager = Averager(
        [torch.zeros(vector.length)], dht, prefix="testbed", start=True, min_group_size=2,
        target_group_size=len(run.workers) if run.options["wait_for_all"] else None,
        min_matchmaking_time=run.options["matchmaking_s"], request_timeout=min(2, run.options["matchmaking_s"] * 0.6),
        allreduce_timeout=run.options["allreduce_s"])
    return dht, averager


def catch_up(run, averager, model):
    """Takes the state of a peer that is ahead, if there is one."""
    began = time.monotonic()
    try:
        loaded = averager.load_state_from_peers(timeout=STATE_TIMEOUT)
    except Exception as error:  # of many kinds
        run.show(f"loading the state: {error!r}")
        return False
    if not loaded or loaded[0]["steps"] <= model.steps:
        return False
    metadata, tensors = loaded
    model.state, model.steps = tensors[0].numpy().copy(), metadata["steps"]
    averager.state_sharing_priority = model.steps
    run.mark("fetch_end", round=model.round, bytes=model.state.nbytes, duration_us=int((time.monotonic() - began) * 1e6), ok=True)
    return True


def average(run, averager, vector, model, steps):
    """Averages once. It returns the rounds of the group, or a reason for there being
    none."""
    vector.fill(model.contribution(), model.round, steps)
    with averager.get_tensors() as (tensor,):
        tensor.numpy()[:] = vector.data
    try:
        group = averager.step(
            gather={"node": run.node, "round": model.round}, timeout=3 * run.options["matchmaking_s"] + 1, allow_retries=False)
    except Exception as error:  # of many kinds
        return None, repr(error)
    if not group:
        return None, "no group was found"
    with averager.get_tensors() as (tensor,):
        vector.data[:] = tensor.numpy()
    return [member["round"] for member in group.values()], None


def play(run):
    torch.set_num_threads(1)
    vector, model = Vector(run), Model(run)
    dht, averager = start(run, model, vector)
    run.ready(f"hivemind {hivemind.__version__}, torch {torch.__version__}")
    run.mark("joined", round=1)
    failures = attempt = 0
    steps = run.spec["inner_steps"]
    if run.incarnation or run.node not in run.spec["initial"]:
        catch_up(run, averager, model)
    while model.steps < run.rounds:
        if not failures:
            run.inner_steps(model.round)
        attempt += 1
        began = time.monotonic()
        rounds, error = average(run, averager, vector, model, steps)
        took = int((time.monotonic() - began) * 1e6)
        if rounds is None:
            failures += 1
            run.mark("reduce_end", round=model.round, attempt=attempt, ok=False, error=error[:300], duration_us=took)
            if os.path.exists(run.meeting("finished")):
                break
            if failures >= FAILURES:
                raise RuntimeError(f"{failures} attempts in a row gave no average; the last error: {error}")
            if catch_up(run, averager, model):
                failures = 0
            continue
        failures = 0
        run.mark("reduce_end", round=model.round, attempt=attempt, ok=True, duration_us=took, world=len(rounds))
        if max(rounds) > model.round:  # the work was for an older round than that of the others
            for _ in range(20):
                if catch_up(run, averager, model):
                    break
                time.sleep(0.2)
            continue
        model.step(vector.values())
        averager.state_sharing_priority = model.steps
        run.mark("commit", round=model.steps, attempt=attempt, lanes=vector.lanes(), hash=model.hash(), duration_us=took, tx=run.sent(), world=len(rounds))
    run.announce(name="finished")
    run.announce(name="finished-" + run.node)
    until = time.monotonic() + LINGER
    while time.monotonic() < until and not all(os.path.exists(run.meeting("finished-" + node)) for node in run.workers):
        time.sleep(0.1)
    run.mark("done", round=model.steps)


run = Run()
run.main(play)
