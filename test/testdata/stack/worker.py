"""Averages by adding up what everybody would contribute: workers do not talk. Its
modes are ways to misbehave."""

import os
import time

from testbed_stack import Model, Run, Vector

DIES, HANGS, GARBAGE, LIES, DAEMON, QUITS, TOO_SOON, NONSENSE = 1, 2, 3, 4, 5, 6, 7, 8


def until_gone(process):
    while os.path.exists("/proc/" + process):
        time.sleep(0.01)


def nonsense(run):
    """Marks that say what cannot be."""
    fd = int(os.environ["TESTBED_MARKS"])
    for mark in (
        b'{"type": "commit", "round": -1}', b'{"type": "step", "round": 1e300, "step": 1}', b'{"type": "commit", "node": "w0", "round": 1}',
        b'{"type": "agreed", "round": 1, "epoch": 2, "members": ["w0", "w1", "w7"]}', b'{"type": "fetch_end", "round": 1, "duration_us": 1e18}',
        b'{"type": "commit", "round": 1, "lanes": [[NaN]]}', b'{"type": "x", "y": "\xff\xfe"}',
    ):
        os.write(fd, mark + b"\n")
    ticks = b'{"type": "tick"}\n' * 100
    for _ in range(110):
        os.write(fd, ticks)
    os.write(fd, b'{"type": "half')


def models_of(run):
    """The outer states of all workers, which differ in what they contribute."""
    own, models = run.index, []
    for run.index in range(len(run.workers)):
        models.append(Model(run))
    run.index = own
    return models


def play(run):
    mode, last = run.options["mode"], run.node == run.workers[-1]
    vector, models = Vector(run), models_of(run)
    model = models[run.index]
    central = run.await_announced("coordinator")
    if mode == TOO_SOON and last:
        os._exit(0)
    run.announce(str(os.getpid()), run.node + "-pid")
    run.ready("fake 1")
    run.mark("agreed", round=1, epoch=1, world=len(run.workers), members=run.workers)
    if mode == DAEMON and os.fork() == 0:
        os.setsid()
        time.sleep(3600)
    while model.steps < run.rounds:
        run.inner_steps(model.round)
        if model.round == 2 and mode == DIES:
            raise ValueError("it was bound to happen")
        if model.round == 2 and mode == HANGS:
            time.sleep(3600)
        if mode == QUITS and model.round == 2:
            run.announce(name="end")
            until_gone(central)
            if last:
                os._exit(0)
            until_gone(run.await_announced(run.workers[-1] + "-pid"))
            time.sleep(1)  # until that end is on record
        if mode == NONSENSE and last and model.round == 2:
            nonsense(run)
        if mode == GARBAGE and last:
            os.write(int(os.environ["TESTBED_MARKS"]), b"\x00\xff no JSON\n" + b"x" * 200000 + b"\n")
            print("\x00garbage" * 1000)
        total = 0
        for k in range(len(run.workers) - (1 if mode == LIES else 0)):
            run.index = k
            vector.fill(models[k].contribution(), model.round, run.spec["inner_steps"])
            total = total + vector.data
        run.index = run.workers.index(run.node)
        vector.data[:] = total / (len(run.workers) - (1 if mode == LIES else 0))
        for each in models:
            each.step(vector.values())
        run.mark("commit", round=model.steps, lanes=vector.lanes(), hash=model.hash(), duration_us=1, tx=run.sent())


run = Run()
run.main(play)
