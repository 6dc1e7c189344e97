from importlib.metadata import version

import numpy
import pccl

print("pypccl", version("pypccl"))
