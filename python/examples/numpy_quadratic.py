"""The stand-in that testbed trains by itself (task quadratic), as a program:
gradient descent towards a point of the worker's own, the optimum of all plus
noise. Its gradients are exact, so that a run can be checked by hand."""

import sys

import numpy as np

import testbed

SIZE = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
RATE = np.float32(0.2)


def gaussian(seed, stream):
    return np.random.default_rng([seed, stream]).standard_normal(SIZE).astype(np.float32)


def loss(params):
    return float(np.mean((params - optimum) ** 2))


run = testbed.join(validate=loss)
optimum = gaussian(run.seed, 0)
target = optimum + np.float32(0.3) * gaussian(run.seed, 2 + run.worker)

run.init(gaussian(run.seed, 1))
for r in run:
    params = r.params.copy()
    for _ in r.steps:
        before = float(np.mean((params - target) ** 2))
        params += RATE * (target - params)
        r.done(before)
    r.params = params
