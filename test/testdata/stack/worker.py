"""Averages by adding up what everybody would contribute: workers do not talk. Its
modes are ways to misbehave."""

import os
import time

from testbed_stack import Model, Run, Vector

DIES, HANGS, GARBAGE, LIES, DAEMON = 1, 2, 3, 4, 5


def play(run):
    mode, last = run.options["mode"], run.node == run.workers[-1]
    vector, model = Vector(run), Model(run)
    run.await_announced("coordinator")
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
        if mode == GARBAGE and last:
            os.write(int(os.environ["TESTBED_MARKS"]), b"\x00\xff no JSON\n" + b"x" * 200000 + b"\n")
            print("\x00garbage" * 1000)
        total = 0
        for k in range(len(run.workers) - (1 if mode == LIES else 0)):
            run.index = k
            vector.fill(model.contribution(), model.round, run.spec["inner_steps"])
            total = total + vector.data
        run.index = run.workers.index(run.node)
        vector.data[:] = total / (len(run.workers) - (1 if mode == LIES else 0))
        model.step(vector.values())
        run.mark("commit", round=model.steps, lanes=vector.lanes(), hash=model.hash(), duration_us=1, tx=run.sent())


run = Run()
run.main(play)
