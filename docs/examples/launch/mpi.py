"""An all-reduce by MPI. mpirun starts the workers itself, in their nodes:

    testbed net homogeneous --at coordinator -- \\
        mpirun --mca plm_rsh_agent docs/examples/launch/mpi_agent.sh \\
            --host w0,w1,w2,w3 python3 docs/examples/launch/mpi.py
"""

import socket
import sys

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
mine, sums = np.full(250_000, float(world.rank)), np.empty(250_000)
world.Allreduce(mine, sums)
# One write a line: mpirun may put another rank's output between two writes.
sys.stdout.write(f"rank {world.rank} of {world.size} on {socket.gethostname()}: {sums[0]:g}\n")
