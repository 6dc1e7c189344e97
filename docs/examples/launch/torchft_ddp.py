"""Distributed data parallel with torchft: nothing here knows testbed. Each worker's node
is a replica group of one process. A group that is killed and starts again takes the model
from another group.

    testbed launch docs/examples/torchft/ddp.yaml --keep-going \\
        --central 'testbed lighthouse --bind [::]:29510 --min_replicas 1 --join_timeout_ms 2000 --heartbeat_timeout_ms 2000' \\
        -- env TORCHFT_LIGHTHOUSE=http://coordinator:29510 STEPS=100 python3 docs/examples/launch/torchft_ddp.py
"""

import os
import socket
import time
from datetime import timedelta

import torch
from torch.distributed import TCPStore
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

torch.set_num_threads(1)
rank, steps = int(os.environ["RANK"]), int(os.environ.get("STEPS", "20"))
torch.manual_seed(0)  # the same model everywhere
module = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
sgd = torch.optim.SGD(module.parameters(), lr=0.01)


def load(state):
    module.load_state_dict(state["model"])
    sgd.load_state_dict(state["optimiser"])
    print("took the model from another group", flush=True)


def state():
    return {"model": module.state_dict(), "optimiser": sgd.state_dict()}


host = socket.gethostname()
store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=5)), load_state_dict=load, state_dict=state, min_replica_size=1, timeout=timedelta(seconds=10),
    rank=0, world_size=1, store_addr=host, store_port=store.port, replica_id=f"group{rank}_")
model, optimiser = DistributedDataParallel(manager, module), Optimizer(manager, sgd)
data = torch.Generator().manual_seed(1 + rank)  # other data everywhere
while manager.current_step() < steps:
    x = torch.randn(32, 64, generator=data)
    optimiser.zero_grad()  # asks for a quorum
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()  # gradients are averaged here
    optimiser.step()  # if all groups of the quorum agree
    if manager.current_step() % 5 == 0:
        print(f"step {manager.current_step()} of {manager.num_participants()} groups: loss {loss.item():.3f}", flush=True)
    time.sleep(float(os.environ.get("PAUSE", "0.25")))  # as a larger model would compute
print(f"weights {sum(p.double().sum().item() for p in model.parameters()):.9f}", flush=True)
