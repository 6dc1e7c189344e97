import os

from testbed_stack import Run

run = Run(worker=False)


def play(run):
    run.announce(str(os.getpid()))
    run.await_announced("end")
    raise RuntimeError("the central program was asked to fail")


run.main(play)
