# One rank of an all-reduce with gloo.
import datetime

import torch
import torch.distributed as dist


def connect():
    address, port, rank, ranks, timeout = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://{address}:{port}", rank=int(rank), world_size=int(ranks),
        timeout=datetime.timedelta(seconds=float(timeout)))
    data = torch.frombuffer(vector(), dtype=torch.float32)
    out = torch.frombuffer(result(), dtype=torch.float32)
    work = torch.empty_like(data)
    return lambda: work.copy_(data), lambda way: dist.all_reduce(work), lambda: out.copy_(work)


serve(connect)
