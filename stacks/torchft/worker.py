"""The worker of torchft: by its raw Manager, or by its DiLoCo class."""

import logging
import os
from importlib import import_module
from importlib.metadata import version

import torch

from testbed_stack import Run


def play(run):
    logging.basicConfig(level=logging.WARNING)
    torch.set_num_threads(1)
    adapter = import_module("diloco" if run.options["diloco"] else "raw")
    worker = adapter.Worker(run)
    run.ready(f"torchft {version('torchft')}, torch {torch.__version__}")
    finished = run.meeting("finished")
    while worker.model.steps < run.rounds:
        try:
            worker.round()
        except (RuntimeError, TimeoutError) as error:
            # Those who have finished ask for no further quorum.
            if not os.path.exists(finished):
                raise
            run.show(f"the others have finished: {error}")
            break
    run.announce(name="finished")
    run.mark("done", round=worker.model.steps)


run = Run()
run.main(play)
