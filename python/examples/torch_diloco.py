"""DiLoCo on a small model of PyTorch: AdamW takes the inner steps here, testbed
exchanges pseudo-gradients and takes the outer steps.

The task: a network learns a function of eight numbers from samples of the
worker's own. AdamW's state is handed over with every round, so that a round that
was thrown away leaves no trace, and a killed run goes on where it was."""

import io

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import testbed

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)


def batch(seed, size=64):
    x = torch.randn(size, 8, generator=torch.Generator().manual_seed(seed))
    return x, torch.sin(x[:, :1] * x[:, 1:2]) + 0.5 * x[:, 2:3]


def train(run):
    torch.manual_seed(run.seed)
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    inner = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def load(params):
        vector_to_parameters(torch.from_numpy(params.copy()), model.parameters())

    def validate(params):
        load(params)
        x, y = batch(1, 1024)
        with torch.no_grad():
            return nn.functional.mse_loss(model(x), y).item()

    def dump():
        file = io.BytesIO()
        torch.save(inner.state_dict(), file)
        return file.getvalue()

    run.init(parameters_to_vector(model.parameters()), validate=validate)
    fresh = dump()
    for r in run:
        load(r.params)
        if r.restored:
            inner.load_state_dict(torch.load(io.BytesIO(r.state or fresh)))
        for step in r.steps:
            # What a step sees depends on worker, round and step alone.
            x, y = batch(((r.number * run.inner_steps + step) * run.workers + run.worker) + 1000)
            loss = nn.functional.mse_loss(model(x), y)
            inner.zero_grad()
            loss.backward()
            inner.step()
            r.done(loss.item())
        r.params = parameters_to_vector(model.parameters())
        r.state = dump()


for run in testbed.runs(state_bytes=1 << 17):  # one, or all of a sweep, each with a model of its own
    train(run)
