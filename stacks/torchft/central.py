"""torchft's lighthouse."""

import time

from torchft.coordination import LighthouseServer

from testbed_stack import Run

PORT = 29510


def play(run):
    options = run.options
    lighthouse = LighthouseServer(
        bind=f"{run.address(run.node)}:{PORT}", min_replicas=int(options["min_replicas"]) or len(run.workers) // 2 + 1,
        join_timeout_ms=int(options["join_timeout_ms"]), quorum_tick_ms=100, heartbeat_timeout_ms=int(options["heartbeat_timeout_ms"]))
    run.announce(f"http://{run.address(run.node)}:{PORT}")
    while lighthouse:
        time.sleep(3600)


run = Run(worker=False)
run.main(play)
