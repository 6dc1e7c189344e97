# What programs of rivals share. A program is one rank of an all-reduce. It maps
# its vector from descriptor 3 and its result from descriptor 4, reads orders as
# JSON lines, and answers each with a JSON line on descriptor 5. Libraries may
# write to standard output whatever they want.
import json
import mmap
import os
import resource
import sys
import time

_answers = os.fdopen(5, "w", buffering=1)


def answer(**values):
    print(json.dumps(values), file=_answers)


def vector():
    """The rank's vector. Changes stay in this process."""
    return mmap.mmap(3, 0, access=mmap.ACCESS_COPY)


def result():
    """The memory of the result, which the benchmark checks."""
    return mmap.mmap(4, 0, access=mmap.ACCESS_WRITE)


def _cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _serve(prepare, reduce, publish):
    before = 0.0
    for line in sys.stdin:
        order = json.loads(line)
        if "start_ns" not in order:
            used = _cpu() - before
            publish()
            answer(cpu=used)
            before = _cpu()  # of a program that is not ordered to reduce
            continue
        prepare()
        before = _cpu()
        start = order["start_ns"]  # on CLOCK_MONOTONIC
        time.sleep(max(0.0, (start - time.monotonic_ns()) / 1e9))
        reduce(order.get("way"))
        answer(took=(time.monotonic_ns() - start) / 1e9)


def nothing(*_):
    pass


def serve(connect):
    """connect makes the connections, and returns functions: prepare, before the
    common start; reduce, in one of several ways; publish, which writes the
    result. An order without a start asks for the result and the processor time.
    """
    try:
        functions = connect()
        answer()
        _serve(*functions)
    except Exception as error:
        answer(error=" ".join(f"{type(error).__name__}: {error}".split())[:500])
    os._exit(0)  # threads of libraries must not delay the end
