"""What torchft does in situations that its documentation does not describe.

Everything is torchft's own: the Manager in its synchronous mode, the process group, and
DiLoCo. A thread is a replica group. Each try of a step is printed as a line of JSON.

A replica contributes a vector with a 1 in its own place. So the average has the shares
of all replicas. A replica that heals takes its donor's vector with the state, as DiLoCo
takes the donor's parameters.

usage: findings.py restart|heal|buckets LIGHTHOUSE…
LIGHTHOUSE is torchft, or the command of Testbed's lighthouse. Each is used in turn.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta

HOST = "127.0.0.1"
TIMEOUT = timedelta(seconds=5)  # of calls between managers
GLOO_TIMEOUT = timedelta(seconds=2)  # gloo needs one to five of them to fail to connect
PORT = 29510  # of the first lighthouse

os.environ.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", TOKIO_WORKER_THREADS="1")
socket.gethostname = lambda: HOST  # torchft advertises its host by this name

import torch
from torch import nn, optim
from torch.distributed import TCPStore
from torchft.local_sgd import DiLoCo
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo


def show(**fields):
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


class Lighthouse:
    def __init__(self, index, command, min_replicas):
        self.index, self.port = index, PORT + index
        if command == "torchft":
            self.command = [sys.executable, os.path.join(os.path.dirname(__file__), "lighthouse.py"), str(self.port), str(min_replicas)]
        else:
            self.command = [*command.split(), "--bind", f"{HOST}:{self.port}", "--min_replicas", str(min_replicas)]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        for _ in range(1200):
            try:
                socket.create_connection((HOST, self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise TimeoutError(f"{self.command} does not listen")

    def kill(self):
        self.process.kill()
        self.process.wait()


class Group(ProcessGroupGloo):
    """A process group that knows its members."""

    members = ()

    def configure(self, *args):
        self.members = list(args[-1])
        super().configure(*args)


class Replica:
    def __init__(self, lighthouse, number, world, init_sync=False):
        self.lighthouse, self.number, self.world = lighthouse, number, world
        self.share = torch.zeros(world)
        self.group = Group(timeout=GLOO_TIMEOUT)
        self.store = TCPStore(HOST, 0, None, True, wait_for_workers=False)
        self.manager = Manager(
            pg=self.group, load_state_dict=self.load, state_dict=self.state, min_replica_size=2, use_async_quorum=False, timeout=TIMEOUT,
            rank=0, world_size=1, store_addr=HOST, store_port=self.store.port, lighthouse_addr=f"http://{HOST}:{lighthouse.port}",
            replica_id=f"w{number}", hostname=HOST, init_sync=init_sync, quorum_retries=3)

    def state(self):
        return {"share": self.share.clone()}

    def load(self, state):
        self.share = state["share"].clone()

    def step(self):
        """Tries an outer step, after inner steps that take no time."""
        manager = self.manager
        self.share = torch.zeros(self.world)
        self.share[self.number] = 1
        manager.start_quorum()
        manager.allreduce(self.share).wait()
        step, error = manager.current_step() + 1, manager.errored()
        committed = manager.should_commit()
        show(lighthouse=self.lighthouse.index, replica=self.number, step=step, quorum_id=manager._quorum_id, group=self.group.members,
             divisor=manager.num_participants(), committed=committed, shares=self.share.tolist() if committed else None,
             error=str(error.original_exception)[:200] if error else "")

    def until(self, step):
        while self.manager.current_step() < step:
            self.step()


def together(*calls):
    """Makes all calls at the same time, and waits for them."""
    failures = []

    def run(call):
        try:
            call()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def newcomer(lighthouse, init_sync, between):
    """Three replicas take two steps. A fourth comes during the inner steps of the third,
    and asks first."""
    replicas = [Replica(lighthouse, k, 4, init_sync) for k in range(3)]
    together(*(lambda r=r: r.until(2) for r in replicas))
    between()
    replicas.append(Replica(lighthouse, 3, 4, init_sync))

    def go_on(r):
        time.sleep(0 if r.number == 3 else 1)  # the rest of the inner steps
        r.until(5)

    together(*(lambda r=r: go_on(r) for r in replicas))
    return replicas


def restart(lighthouse):
    """The lighthouse dies and comes back while the replicas take inner steps."""

    def dies():
        lighthouse.kill()
        lighthouse.start()

    return newcomer(lighthouse, False, dies)


def heal(lighthouse):
    """All begin with init_sync, and the fourth heals later."""
    return newcomer(lighthouse, True, lambda: None)


class Parameters(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.all = nn.ParameterList(nn.Parameter(torch.zeros(size)) for size in sizes)


def train(lighthouse, sizes, megabytes):
    """Two replicas take two rounds of one inner step with DiLoCo. In each, a parameter of
    the first moves by 1, and of the second by 2: by 1.5 on average."""
    replicas = [Replica(lighthouse, k, 2) for k in range(2)]
    models = [Parameters(sizes) for _ in replicas]

    def rounds(replica, model):
        inner, outer = optim.SGD(model.parameters(), lr=1), optim.SGD(model.parameters(), lr=1)
        with DiLoCo(replica.manager, [model], inner, outer, sync_every=1, use_bucketization=True, bucket_cap_mb=megabytes):
            for _ in range(2):
                for p in model.all:
                    p.grad = torch.full_like(p, -float(replica.number + 1))
                inner.step()

    together(*(lambda r=r, m=m: rounds(r, m) for r, m in zip(replicas, models)))
    for r, m in zip(replicas, models):
        show(replica=r.number, sizes=sizes, bucket_cap_mb=megabytes or 0, steps=r.manager.current_step(),
             parameters=[[float(p.min()), float(p.max())] for p in m.all])
    return replicas


MIB = 262_144  # float32 values


def main(what, commands):
    play = {"restart": restart, "heal": heal}.get(what)
    if play:
        runs = [(command, 3, play) for command in commands]
    else:
        cases = [([256, MIB], 1), ([MIB, 256], 1), ([256, 256], 1), ([256, MIB], 32), ([256, MIB], None)]
        runs = [(command, 2, lambda l, c=c: train(l, *c)) for command in commands for c in cases]
    for index, (command, min_replicas, play) in enumerate(runs):
        lighthouse = Lighthouse(index, command, min_replicas)
        for replica in play(lighthouse):
            replica.manager.shutdown(wait=False)
        lighthouse.kill()
    os._exit(0)  # threads of the libraries stay


main(sys.argv[1], sys.argv[2:])
