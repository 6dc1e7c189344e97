"""As much of numpy as the benchmark's program for PCCL needs."""

float32 = "f"


def frombuffer(buffer, kind):
    return memoryview(buffer).cast(kind)
