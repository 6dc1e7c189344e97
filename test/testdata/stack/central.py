import time

from testbed_stack import Run

run = Run(worker=False)


def play(run):
    run.announce("nothing")
    while True:
        time.sleep(60)


run.main(play)
