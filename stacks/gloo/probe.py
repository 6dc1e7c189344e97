import numpy
import torch
import torch.distributed as dist

assert dist.is_available() and dist.is_gloo_available() if hasattr(dist, "is_gloo_available") else dist.is_available(), "torch was built without gloo"
print("torch", torch.__version__)
