from importlib.metadata import version

import numpy
import torch
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo

print(f"torchft {version('torchft')}, torch {torch.__version__}")
