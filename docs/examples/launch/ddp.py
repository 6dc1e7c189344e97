"""Distributed data parallel, as in PyTorch's own tutorials: nothing here knows testbed.

    testbed launch homogeneous -- python3 docs/examples/launch/ddp.py
    testbed launch homogeneous -- torchrun docs/examples/launch/ddp.py
"""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)  # the same model everywhere
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)))
optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.Generator().manual_seed(1 + rank)  # other data everywhere
for step in range(int(os.environ.get("STEPS", "20"))):
    x = torch.randn(32, 64, generator=data)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimiser.zero_grad()
    loss.backward()  # gradients are averaged here
    optimiser.step()
    if rank == 0 and step % 5 == 4:
        print(f"step {step + 1} of {world} workers: loss {loss.item():.3f}", flush=True)
print(f"weights {sum(p.double().sum().item() for p in model.parameters()):.9f}", flush=True)
dist.destroy_process_group()
