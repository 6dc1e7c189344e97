import numpy
import torch

import hivemind

print(f"hivemind {hivemind.__version__}, torch {torch.__version__}")
