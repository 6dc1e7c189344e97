# One rank of an all-reduce with gloo. It reads lines: a time on CLOCK_MONOTONIC
# in nanoseconds at which to begin, or "cpu". It answers each with a line.
import datetime
import json
import resource
import sys
import time

import torch
import torch.distributed as dist


def answer(**values):
    print(json.dumps(values), flush=True)


def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


address, port, rank, ranks, elements, timeout = sys.argv[1:]
torch.set_num_threads(1)
try:
    dist.init_process_group(
        "gloo", init_method=f"tcp://{address}:{port}", rank=int(rank), world_size=int(ranks),
        timeout=datetime.timedelta(seconds=float(timeout)))
    generator = torch.Generator().manual_seed(int(rank))
    data = torch.randn(int(elements), generator=generator)
    work = torch.empty_like(data)
    answer()
    before = 0.0
    for line in sys.stdin:
        if line.strip() == "cpu":
            answer(cpu=cpu() - before)
            continue
        work.copy_(data)
        before = cpu()
        start = int(line)
        time.sleep(max(0.0, (start - time.monotonic_ns()) / 1e9))
        dist.all_reduce(work)
        answer(took=(time.monotonic_ns() - start) / 1e9)
except Exception as error:
    answer(error=" ".join(str(error).split()))
