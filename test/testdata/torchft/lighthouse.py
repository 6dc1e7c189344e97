"""torchft's lighthouse, from its compiled part, which loads without torch.

usage: lighthouse.py PORT MIN_REPLICAS
"""

import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
import time

folder = os.path.join(sysconfig.get_path("platlib"), "torchft")
file = next(os.path.join(folder, name) for name in os.listdir(folder) if name.startswith("_torchft") and name.endswith(".so"))
loader = importlib.machinery.ExtensionFileLoader("_torchft", file)
torchft = importlib.util.module_from_spec(importlib.util.spec_from_loader("_torchft", loader))
loader.exec_module(torchft)

server = torchft.LighthouseServer(bind=f"127.0.0.1:{sys.argv[1]}", min_replicas=int(sys.argv[2]), join_timeout_ms=60000, quorum_tick_ms=100, heartbeat_timeout_ms=5000)
while server:
    time.sleep(3600)
