"""The first peer of the DHT."""

import time

import hivemind
from hivemind.p2p import P2P

from testbed_stack import Run

# The node's own memory: files in /tmp would stay when the node is gone.
P2P._UNIX_SOCKET_PREFIX = "/unix/dev/shm/hivemind-"

PORT = 31337


def play(run):
    dht = hivemind.DHT(
        host_maddrs=[f"/ip4/{run.address(run.node)}/tcp/{PORT}"], start=True, use_relay=False, auto_nat=False, nat_port_map=False, startup_timeout=120)
    run.announce(str(dht.get_visible_maddrs()[0]))
    while dht:
        time.sleep(3600)


run = Run(worker=False)
run.main(play)
