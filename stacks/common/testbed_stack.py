"""What adapters of all stacks share: the run's settings, inner steps, marks, and the
lanes that prove who took part in an average.

An adapter is the worker of a training system that testbed plays as a whole. It says
what happens by marks, and testbed turns the marks into the record of the run.
"""

import hashlib
import json
import os
import sys
import time
import traceback

import numpy as np

# A sleep is cut into slices, so that a pause of the process does not count as work.
SLICE = 0.010
SLACK = 0.020  # lateness of a slice that still counts as sleep

LANES = 4  # of each worker: presence, inner steps, round, its square
ROUNDS = 1000  # rounds are counted modulo this, so that float32 holds their squares


class Run:
    """The settings of this worker's run. worker is False for the central process."""

    def __init__(self, worker=True):
        with open(os.environ["TESTBED_STACK"]) as file:
            self.spec = json.load(file)
        self.node = os.environ["TESTBED_NODE"]
        self.incarnation = int(os.environ.get("TESTBED_INCARNATION", 0))
        self.rounds = self.spec["rounds"]
        self.workers = self.spec["workers"]  # names of nodes
        self.options = self.spec["options"]
        self._marks = os.fdopen(int(os.environ["TESTBED_MARKS"]), "w", buffering=1)
        self._shown = 0
        if worker:
            self.index = self.workers.index(self.node)
            # Each process begins elsewhere, so that a restarted one does not repeat the steps.
            self._steps = self.spec["steps_us"][self.node]
            self._next = self.incarnation * 7919 % len(self._steps)

    def address(self, node):
        return os.environ["TESTBED_ADDR_" + node.upper().replace("-", "_")]

    def mark(self, kind, **fields):
        print(json.dumps({"type": kind, "incarnation": self.incarnation, **fields}), file=self._marks)

    # Files with which processes wait for each other before the run begins. They take
    # nothing of the network.

    def meeting(self, name):
        """The file of an announcement."""
        return os.path.join(self.spec["meeting"], name)

    def announce(self, text="ready", name=None):
        path = self.meeting(name or self.node)
        new = f"{path}.{self.node}.new"  # several may announce one name at once
        with open(new, "w") as file:
            file.write(text)
        os.replace(new, path)

    def await_announced(self, name):
        while not os.path.exists(self.meeting(name)):
            time.sleep(0.05)
        with open(self.meeting(name)) as file:
            return file.read()

    def ready(self, version):
        """Waits for the other workers that are there from the start, then starts the
        scenario's clock. A worker that comes later does not wait."""
        first = self.incarnation == 0 and self.node in self.spec["initial"]
        if not first:
            return
        self.announce()
        for node in self.spec["initial"]:
            self.await_announced(node)
        self.mark("start", stack=self.spec["stack"], version=version)

    # Inner steps.

    def _factor(self):
        try:
            with open(os.path.join(self.spec["factors"], self.node)) as file:
                return float(file.read())
        except FileNotFoundError:
            return 1.0

    def inner_steps(self, number):
        """Takes the inner steps of a round, and marks the arrival at its reduction."""
        began = time.monotonic()
        for step in range(1, self.spec["inner_steps"] + 1):
            step_began = time.monotonic()
            wanted = self._steps[self._next % len(self._steps)] / 1e6
            self._next += 1
            if self.spec["measured"]:
                _compute(wanted)
            else:
                _sleep(wanted * self._factor())
            self.mark("step", round=number, step=step, duration_us=_since(step_began))
        self.arrive(number, self.spec["inner_steps"], _since(began))

    def arrive(self, number, steps, compute_us=0):
        self._sent = sent_bytes()
        self.mark("arrive", round=number, steps=steps, compute_us=compute_us)

    def sent(self):
        """Bytes that the node has sent since the arrival."""
        return sent_bytes() - self._sent

    def show(self, text):
        print(text, file=sys.stderr, flush=True)

    def main(self, play):
        """Runs the adapter to its end. The libraries' threads must not delay it."""
        code = 0
        try:
            play(self)
        except KeyboardInterrupt:
            code = 130
        except BaseException as error:  # a SystemExit is an error, too
            traceback.print_exc()
            self.mark("fail", error=f"{type(error).__name__}: {error}"[:500])
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        self._marks.flush()
        os._exit(code)


def _since(began):
    return int((time.monotonic() - began) * 1e6)


def _sleep(seconds):
    left = seconds
    while left > 0:
        asked = min(left, SLICE)
        before = time.monotonic()
        time.sleep(asked)
        left -= min(time.monotonic() - before, asked + SLACK)


def _compute(seconds):
    """Uses this much processor time of this thread."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))


def sent_bytes(interface="eth0"):
    with open("/proc/self/net/dev") as file:
        for line in file:
            name, _, counters = line.partition(":")
            if name.strip() == interface:
                return int(counters.split()[8])
    return 0


class Vector:
    """The vector that is averaged: the values, and lanes for each worker at the head
    of each slice. By default there are as many slices as workers."""

    def __init__(self, run, slices=None):
        self.run = run
        self.slices = slices or len(run.workers)
        self.block = LANES * len(run.workers)
        self.length = run.spec["values"] + self.slices * self.block
        self.starts = [k * self.length // self.slices for k in range(self.slices)] + [self.length]
        if any(end - start < self.block for start, end in zip(self.starts, self.starts[1:])):
            raise ValueError("the vector has too few values for its lanes")
        self.data = np.zeros(self.length, np.float32)

    def _parts(self):
        at = 0
        for start, end in zip(self.starts, self.starts[1:]):
            n = end - start - self.block
            yield start + self.block, end, at, at + n
            at += n

    def fill(self, values, number, steps):
        """Sets the values, and this worker's lanes. A worker that has done no steps
        contributes nothing, not even its presence."""
        for start, end, low, high in self._parts():
            self.data[start:end] = values[low:high] if steps else 0
        for start in self.starts[:-1]:
            lanes = self.data[start : start + self.block]
            lanes[:] = 0
            own = LANES * self.run.index
            number %= ROUNDS
            if steps:
                lanes[own : own + LANES] = (1, steps, number, number * number)

    def values(self):
        out = np.empty(self.run.spec["values"], np.float32)
        for start, end, low, high in self._parts():
            out[low:high] = self.data[start:end]
        return out

    def contributors(self, at=0):
        """How many have contributed to the slice that begins there, after a sum."""
        return round(float(self.data[at : at + self.block : LANES].sum()))

    def lanes(self):
        """The averaged lanes, as a list for each different slice. Slices that differ in
        the last bits are the same."""
        blocks = []
        for start in self.starts[:-1]:
            block = [float(f"{x:.5g}") for x in self.data[start : start + self.block]]
            if block not in blocks:
                blocks.append(block)
        return blocks


class Model:
    """The outer state: as many values as the scenario's vector, and the number of
    outer steps. It learns nothing; its hash shows whether workers agree."""

    def __init__(self, run):
        self.run = run
        self.steps = 0
        self.state = np.zeros(run.spec["values"], np.float32)
        # All values differ, so that a sum in another order shows in the hash.
        self._gradient = np.random.default_rng(run.index).standard_normal(len(self.state), np.float32)

    @property
    def round(self):
        """The round that comes next."""
        return self.steps + 1

    def contribution(self):
        """The pseudo-gradient of a round: a different one of each worker, and in each
        round."""
        return np.roll(self._gradient, self.steps)

    def step(self, mean):
        self.state += mean
        self.steps += 1

    def hash(self):
        return hashlib.blake2b(self.state.tobytes(), digest_size=8).hexdigest()
