"""The store of the loop's memberships. It moves no gradients."""

import time
from datetime import timedelta

from torch.distributed import TCPStore

from testbed_stack import Run

PORT = 29400


def play(run):
    store = TCPStore(run.address(run.node), PORT, None, True, timedelta(seconds=60), wait_for_workers=False)
    run.announce(str(PORT))
    while store:
        time.sleep(3600)


run = Run(worker=False)
run.main(play)
