"""PCCL's master. It moves no data."""

import time

from pccl import MasterNode

from testbed_stack import Run

PORT = 48148


def play(run):
    master = MasterNode(f"{run.address(run.node)}:{PORT}")
    master.run()
    run.announce(str(PORT))
    while master:
        time.sleep(3600)


run = Run(worker=False)
run.main(play)
