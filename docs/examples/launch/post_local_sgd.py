"""Post-local SGD (Lin and others, 2018): plain data parallel at first, then steps of one's
own with an average of the parameters every few of them. It marks what it does.

    testbed launch persistent_straggler --out DIR -- python3 docs/examples/launch/post_local_sgd.py
    testbed report DIR
"""

import json
import os

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

WARM_UP, PERIOD = 5, 4

descriptor = os.environ.get("TESTBED_MARKS")  # absent outside of testbed launch
marks = os.fdopen(int(descriptor), "w", buffering=1) if descriptor else open(os.devnull, "w")


def mark(kind: str, **fields: object) -> None:
    print(json.dumps({"type": kind, **fields}), file=marks)


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
# A group of its own for the gradients: every process averages them with itself alone.
alone = [dist.new_group([k]) for k in range(dist.get_world_size())][rank]
model = DistributedDataParallel(torch.nn.Linear(256, 256))
model.register_comm_hook(PostLocalSGDState(process_group=None, subgroup=alone, start_localSGD_iter=WARM_UP), post_localSGD_hook)
optimiser = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), PeriodicModelAverager(period=PERIOD, warmup_steps=WARM_UP))
mark("start")  # all have met: from here on the scenario's clock counts
data = torch.Generator().manual_seed(1 + rank)
for step in range(1, 1 + int(os.environ.get("STEPS", "22"))):
    x = torch.randn(32, 256, generator=data)
    loss = (model(x) - x.flip(1)).square().mean()
    optimiser.zero_grad()
    loss.backward()
    averages = step > WARM_UP and (step - 1 - WARM_UP) % PERIOD == 0
    if averages:
        mark("arrive", round=step)
    optimiser.step()
    if averages:
        mark("reduced", round=step)
    mark("step", step=step, loss=loss.item())
print(f"loss {loss.item():.4f}, weights {sum(p.double().sum().item() for p in model.parameters()):.9f}", flush=True)
dist.destroy_process_group()
