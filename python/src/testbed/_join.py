"""Train inside Testbed: your own program takes the inner steps of a worker.

    import testbed

    run = testbed.join()
    run.init(flat(model))               # the same parameters in every process
    for r in run:                       # one round; the loop ends with the run
        load(model, r.params)
        for step in r.steps:            # each step begins when its time has come
            r.done(train_one_step())    # the loss of the batch before the step
        r.params = flat(model)          # handed over at the end of the loop's body

Testbed starts the program beside every worker. The field `train.program` of a scenario
names the program. docs/trainer.md explains everything.
"""

import collections
import json
import math
import mmap
import os
import socket
import sys

import numpy

__all__ = ["join", "runs", "Run", "Round", "flat", "load_model"]
__version__ = "1.1"

VERSION = 1  # of the protocol
_MAX_BYTES = 4096  # of a message


class _Over(Exception):
    """The run is over."""


def flat(values):
    """Returns one float32 vector with the values of an array or tensor, or of several in order."""
    if isinstance(values, numpy.ndarray) or hasattr(values, "detach"):
        values = [values]
    parts = [_array(v).reshape(-1) for v in values]
    if len(parts) == 1:
        return numpy.ascontiguousarray(parts[0], dtype=numpy.float32)
    return numpy.concatenate(parts).astype(numpy.float32, copy=False)


def _array(value):
    if hasattr(value, "detach"):  # a tensor of torch, which is not imported here
        value = value.detach().cpu()
        try:
            value = value.numpy()
        except TypeError:  # of a type that numpy does not have, such as bfloat16
            value = value.float().numpy()
    return numpy.asarray(value)


def load_model(path):
    """Returns the parameters in the file `model` of a run directory, as a vector."""
    with open(path, "rb") as file:
        head = json.loads(file.readline())
        params = numpy.frombuffer(file.read(), dtype="<f4")
    if params.size != head.get("parameters", params.size):
        raise ValueError("%s contains %d parameters instead of %d, so it is damaged" % (path, params.size, head["parameters"]))
    return params.astype(numpy.float32)


def join(size=None, state_bytes=None, validate=None, standalone=False):
    """Joins the run that has started this process.

    size: the number of parameters of the model. If given, run.init checks the number.
    state_bytes: the largest length of r.state. By default it is the largest allowed length:
        64 KiB and 64 bytes for each parameter. Unused memory costs nothing.
    validate: a function that takes the parameters and returns a validation loss. Testbed
        calls it in a separate process.
    standalone: plays one worker alone if testbed has not started this process. This helps to
        debug. True means 3 rounds of 4 inner steps. A dict gives rounds, inner_steps and
        seed. Losses are printed to stderr. Under testbed, standalone changes nothing.
    """
    return Run(size, state_bytes, validate, standalone)


def runs(size=None, state_bytes=None, validate=None, standalone=False):
    """Yields the runs of this process, one after another. The arguments are the arguments of join.

    Use it for programs that can train for one run after another. Then `sweep --train` and
    `tune --train` start the program once, and not for each point:

        for run in testbed.runs():
            …                       # as after join: model, optimiser, run.init, rounds

    Each pass of the loop must begin without values of the run before: with a new model, a new
    optimiser, and random numbers from run.seed. Imports and data can stay. Outside of sweeps
    and searches there is one run.
    """
    run = Run(size, state_bytes, validate, standalone, warm=True)
    while True:
        yield run
        if run._other is None:
            return
        run = run._another(size, state_bytes, validate)


class Run:
    """The run. Iterating over it yields the rounds of this process's worker.

    worker: the number of the worker, from 0. Choose the worker's shard of the data by it.
    workers, seed, inner_steps, rounds: numbers of the run. Rounds and inner steps count from 1.
    """

    def __init__(self, size, state_bytes, validate, standalone=False, warm=False):
        self._alone, self._warm = None, warm
        if standalone and "TESTBED_SOCKET" not in os.environ:
            self._alone = _Alone(**({} if standalone is True else dict(standalone)))
        else:
            self._connect()
        self._begin(size, state_bytes, validate)

    def _another(self, size, state_bytes, validate):
        """The run that follows this one in the same process."""
        run = object.__new__(type(self))
        run._alone, run._warm, run._socket, run._memory = self._alone, True, self._socket, self._memory
        run._begin(size, state_bytes, validate, self._other)
        return run

    def _begin(self, size, state_bytes, validate, welcome=None):
        self._size, self._state_bytes, self._validate = size, state_bytes, validate
        self._other = None  # the welcome to the run after this one
        self._next = None  # has been received, and not yet acted on
        self._over = False  # the run is
        self._shared = None
        try:
            m = welcome or self._receive("welcome")
        except _Over:
            sys.exit(0)
        if m.get("version") != VERSION:
            raise RuntimeError(
                "testbed speaks version %s of the protocol, but this package speaks version %d: use the package that comes with testbed" % (m.get("version"), VERSION)
            )
        self._role = m["role"]
        self.worker, self.workers = m.get("worker", 0), m.get("workers", 0)
        self.seed, self.inner_steps, self.rounds = m.get("seed", 0), m.get("inner_steps", 0), m.get("rounds", 0)

    def _connect(self):
        try:
            fd, self._memory = int(os.environ["TESTBED_SOCKET"]), int(os.environ["TESTBED_MEMORY"])
        except KeyError:
            raise RuntimeError(
                "testbed has not started this program: name the program in train.program of a scenario, "
                "and run `testbed run` or `testbed simulate --train`; testbed.join(standalone=True) plays one worker without testbed"
            ) from None
        try:
            self._socket = socket.socket(fileno=fd)
            os.fstat(self._memory)
        except OSError:
            raise RuntimeError(
                "the descriptors %d and %d, which connect this program to testbed, are closed: a launcher between testbed and this process closes "
                "inherited descriptors; pass them on (subprocess.run(…, pass_fds=(%d, %d))), or name this program in train.program" % (2 * (fd, self._memory))
            ) from None

    def init(self, params, validate=None):
        """Offers the initial parameters. The parameters of the first call become the parameters of
        all workers. Every process must offer the same number of parameters. validate has the
        meaning that it has in join."""
        if validate is not None:
            self._validate = validate
        params = flat(params)
        if self._size is not None and params.size != self._size:
            raise ValueError("run.init was given %d initial parameters, but testbed.join was given the size %d" % (params.size, self._size))
        self._size = params.size
        if self._state_bytes is None:
            self._state_bytes = (64 << 10) + 64 * params.size
        try:
            message = dict(version=VERSION, parameters=self._size, state_bytes=self._state_bytes, validates=self._validate is not None)
            if self._warm:
                message["again"] = True
            self._send(type="join", **message)
            layout = self._receive("memory")["layout"]
        except _Over:
            sys.exit(0)
        self._shared, self._layout = self._alone.memory if self._alone else mmap.mmap(self._memory, layout["bytes"]), layout
        self._outer, self._local = self._vector("outer"), self._vector("local")
        if self._role == "init":
            _tell_imports()
            self._local[:] = params
            self._send(type="init")

    def _vector(self, name):
        return numpy.frombuffer(self._shared, dtype=numpy.float32, count=self._size, offset=self._layout[name])

    def _send(self, **message):
        if self._alone:
            self._alone.take(message)
            return
        if self._over:
            raise _Over()
        try:
            self._socket.send(json.dumps(message).encode())
        except (BrokenPipeError, ConnectionResetError):
            self._over = True
            raise _Over() from None

    def _receive(self, *types):
        m, self._next = self._next, None
        if m is None and self._alone:
            m = self._alone.say()
            if m is None:
                self._over = True
                raise _Over()
        if m is None:
            try:
                data = b"" if self._over else self._socket.recv(_MAX_BYTES)
            except ConnectionResetError:
                data = b""
            if not data:
                self._over = True
                raise _Over()
            m = json.loads(data)
        if m["type"] == "welcome" and self._warm and self._shared is not None:  # to another run: this one is over
            self._other, self._over = m, True
            raise _Over()
        if m["type"] not in types:
            raise RuntimeError("testbed sent the unexpected message %r" % m["type"])
        return m

    def __iter__(self):
        if self._shared is None:
            raise RuntimeError("call run.init with the initial parameters first")
        state = b""
        try:
            while True:
                m = self._receive("round", "validate")
                if m["type"] == "validate":
                    loss = _finite(self._validate(self._outer.copy()), "validation loss")
                    self._send(type="loss", attempt=m["attempt"], loss=loss)
                    continue
                if m.get("restored"):
                    at = self._layout["state_in"]
                    state = self._shared[at : at + m.get("state", 0)]
                r = Round(self, m, _decode(state))
                yield r
                state = r._end(state)
        except _Over:
            return


class Round:
    """A round of this worker.

    number: the number of the round, from 1.
    params: a float32 vector. At first it contains the outer parameters. At the end of the
        loop's body its contents are handed over. It is shared memory: copy what you keep.
    state: the state that the last counted round left, or None. It is bytes, or a value that
        JSON can represent. At the end of the loop's body it is kept for checkpoints.
    restored: whether state differs from the state that this process left last, because a round
        was discarded or the run continues after a crash. Then load the state.
    """

    def __init__(self, run, message, state):
        self._run, self._attempt = run, message["attempt"]
        self._step, self._finished = None, False
        self.number, self.restored, self.state = message["round"], message.get("restored", False), state
        self._params = run._outer

    @property
    def params(self):
        return self._params

    @params.setter
    def params(self, values):
        if values is not self._params:
            values = flat(values)
            if values.size != self._params.size:
                raise ValueError("r.params was given %d parameters, but the run has %d" % (values.size, self._params.size))
            self._params = self._run._local
            self._params[:] = values

    @property
    def steps(self):
        """The numbers of the inner steps, from 1. The loop ends early if the worker is left out of
        the round."""
        while True:
            if self._step is not None:
                raise RuntimeError("inner step %d was not reported; call r.done(loss)" % self._step)
            try:
                m = self._run._receive("step", "finish", "round")
            except _Over:
                return
            if m["type"] == "round":
                self._run._next = m
                return
            if m["type"] == "finish":
                self._finished = True
                return
            self._step = m["step"]
            yield self._step

    def done(self, loss):
        """Reports the inner step, with the training loss of its batch before the step."""
        loss = _finite(loss, "loss of inner step %s of round %d" % (self._step, self.number))
        try:
            self._run._send(type="done", attempt=self._attempt, step=self._step, loss=loss)
        except _Over:
            pass  # steps breaks off
        self._step = None

    def _end(self, before):
        """Hands the round over, and returns the state after it."""
        if not self._finished:
            if self._run._next is None and not self._run._over:
                raise RuntimeError("round %d ended before its inner steps were done; run the loop over r.steps to its end" % self.number)
            return before  # broken off
        state = _encode(self.state)
        if len(state) > self._run._state_bytes:
            raise ValueError("r.state has %d bytes, more than the run allows: call testbed.join(state_bytes=%d)" % (len(state), len(state)))
        if self._params is self._run._outer:  # changed in place, if at all
            self._run._local[:] = self._params
        at = self._run._layout["state_out"]
        self._run._shared[at : at + len(state)] = state
        self._run._send(type="finished", attempt=self._attempt, state=len(state))
        return state


class _Alone:
    """Testbed's side of the protocol for one worker alone. The parameters that the worker hands
    over become the next outer parameters."""

    def __init__(self, rounds=3, inner_steps=4, seed=0):
        if rounds < 1 or inner_steps < 1:
            raise ValueError("standalone has rounds %s and inner_steps %s: both must be at least 1" % (rounds, inner_steps))
        self._rounds, self._steps, self._round, self._losses = rounds, inner_steps, 0, []
        self._said = collections.deque([dict(type="welcome", version=VERSION, role="init", worker=0, workers=1, seed=seed, inner_steps=inner_steps, rounds=rounds)])

    def say(self):
        return self._said.popleft() if self._said else None

    def take(self, m):
        kind = m["type"]
        if kind == "join":
            bytes_, state = 4 * m["parameters"], m["state_bytes"]
            self._validates = m["validates"]
            starts = [0]
            for length in (bytes_, bytes_, state, state):
                starts.append((starts[-1] + length + 63) // 64 * 64)
            self._layout = dict(zip(("outer", "local", "state_in", "state_out", "bytes"), starts))
            self._bytes, self.memory = bytes_, mmap.mmap(-1, max(1, starts[-1]))
            self._say(type="memory", layout=self._layout)
        elif kind == "init":
            self._outer()
            self._begin(0)
        elif kind == "done":
            self._losses.append(m["loss"])
            if m["step"] < self._steps:
                self._say(type="step", step=m["step"] + 1)
            else:
                self._say(type="finish")
        elif kind == "finished":
            self._outer()
            size, i, o = m["state"], self._layout["state_in"], self._layout["state_out"]
            self.memory[i : i + size] = self.memory[o : o + size]
            self._state, self._line = size, "round %d: training loss %.6g" % (self._round, sum(self._losses) / len(self._losses))
            if self._validates:
                self._say(type="validate", attempt=self._round)
            else:
                self._ended()
        elif kind == "loss":
            self._line += ", validation loss %.6g" % m["loss"]
            self._ended()

    def _say(self, **message):
        self._said.append(message)

    def _outer(self):
        local, outer = self._layout["local"], self._layout["outer"]
        self.memory[outer : outer + self._bytes] = self.memory[local : local + self._bytes]

    def _begin(self, state):
        self._round, self._losses = self._round + 1, []
        self._say(type="round", attempt=self._round, round=self._round, state=state)
        self._say(type="step", step=1)

    def _ended(self):
        print(self._line, file=sys.stderr)
        if self._round < self._rounds:
            self._begin(self._state)


def _tell_imports():
    """Writes down what this program has imported, for the record of the run."""
    path = os.environ.get("TESTBED_IMPORTS")
    if not path:
        return
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    own = {os.path.realpath(os.getcwd())} | ({os.path.dirname(os.path.realpath(main))} if main else set())
    package = os.path.dirname(os.path.realpath(__file__))
    files, libraries = [], {}
    for name, module in sorted(sys.modules.items()):
        file, version = getattr(module, "__file__", None), getattr(module, "__version__", None)
        if not isinstance(file, str):
            continue
        file = os.path.realpath(file)
        parts = file.split(os.sep)
        library = "site-packages" in parts or "dist-packages" in parts or file.startswith(package + os.sep)
        if not library and any(file.startswith(folder.rstrip(os.sep) + os.sep) for folder in own):
            files.append(file)
        elif "." not in name and isinstance(version, str) and library:
            libraries[name] = version
    new = "%s.%d" % (path, os.getpid())  # others may be reading, or writing, too
    with open(new, "w", encoding="utf-8") as out:
        json.dump({"python": sys.version.split()[0], "libraries": libraries, "files": sorted(set(files))}, out)
    os.replace(new, path)


def _finite(loss, what):
    loss = float(loss)
    if not math.isfinite(loss):
        raise ValueError("the %s is %s: the training has diverged; lower the learning rate, or train.outer.rate" % (what, loss))
    return loss


# A state begins with a byte for its kind.
def _encode(state):
    if state is None:
        return b""
    if isinstance(state, (bytes, bytearray, memoryview)):
        return b"b" + bytes(state)
    return b"j" + json.dumps(state).encode()


def _decode(state):
    if not state:
        return None
    return json.loads(state[1:]) if state[:1] == b"j" else bytes(state[1:])
