import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import testbed as tb
from testbed import aio

from .conftest import processes_of

SRC = str(Path(tb.__file__).resolve().parents[1])


def long_run(seconds=300):
    sc = tb.Scenario.library("persistent_straggler")
    sc.name = "takes_long"
    sc.target_outer_steps, sc.horizon = 1000, 10**9
    sc.real.time_scale = 300
    return sc


def wait_for(what, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return
        time.sleep(0.05)
    pytest.fail("it did not come to that within %d s" % seconds)


def test_ctrl_c_ends_the_run_and_leaves_nothing(real_network, own_folder):
    code = (
        "import testbed as tb\n"
        "sc = tb.Scenario.library('persistent_straggler'); sc.name='interrupted_run'; sc.target_outer_steps=1000; sc.horizon=10**9\n"
        "try:\n    tb.run(sc, 'baseline', progress=lambda p: print(p.text, flush=True))\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    p = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": SRC}, start_new_session=True)
    for line in p.stdout:
        if "round 1 of" in line:
            break
    p.send_signal(signal.SIGINT)
    out, _ = p.communicate(timeout=60)
    assert out.splitlines()[-1] == "interrupted"
    assert p.returncode == 0
    assert not processes_of(str(own_folder)), "nothing of it is left"
    assert not [n for n in os.listdir(own_folder) if n.startswith(".testbed-")]


def test_cancel_from_another_thread(real_network, own_folder):
    cancel = tb.Cancel()
    begun = threading.Event()

    def heard(p):
        if p.done >= 1 and not begun.is_set():
            begun.set()
            threading.Thread(target=cancel).start()

    with pytest.raises(KeyboardInterrupt):
        tb.run(long_run(), "baseline", progress=heard, cancel=cancel)
    assert begun.is_set()
    wait_for(lambda: not processes_of(str(own_folder)))


def test_what_progress_raises_ends_the_run(real_network, own_folder):
    def heard(p):
        if p.done >= 1:
            raise RuntimeError("enough of it")

    with pytest.raises(RuntimeError, match="enough of it"):
        tb.run(long_run(), "baseline", progress=heard)
    wait_for(lambda: not processes_of(str(own_folder)))


def test_two_at_once(own_folder):
    async def both():
        return await asyncio.gather(*(aio.compare("persistent_straggler", world="sim") for _ in range(4)))

    of = asyncio.run(both())
    assert len({c.dir for c in of}) == 4, "each has a record of its own"
    assert {round(c.speedup(), 2) for c in of} == {4.59}


def test_a_coroutine_that_is_cancelled(real_network, own_folder):
    async def cancelled():
        task = asyncio.ensure_future(aio.run(long_run(), "baseline"))
        await asyncio.sleep(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    wait_for(lambda: not processes_of(str(own_folder)))


def test_an_invalid_result_is_carried(own_folder):
    sc = tb.Scenario.library("persistent_straggler")
    sc.horizon = 15_000
    with pytest.raises(tb.InvalidResult, match="the run ended early, after 1 outer step") as failed:
        tb.simulate(sc, "baseline")
    assert not failed.value.result.complete and failed.value.result.outer_steps == 1


def test_the_binary_is_missing(monkeypatch):
    monkeypatch.setenv("TESTBED_BINARY", "/nonexistent")
    with pytest.raises(tb.TestbedError, match="TESTBED_BINARY is /nonexistent"):
        tb.version()


def program_that(own_folder, monkeypatch, *lines):
    path = own_folder / "testbed"
    path.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    path.chmod(0o755)
    monkeypatch.setenv("TESTBED_BINARY", str(path))


def test_the_doctor_says_what_is_missing(own_folder, monkeypatch):
    check = '[{"name":"sandbox","ok":false,"needed":true,"detail":"not permitted"}]'
    program_that(own_folder, monkeypatch, "echo '%s'" % check, "echo 'testbed: no real run is possible here' >&2", "exit 4")
    assert [c["name"] for c in tb.doctor().data if c["needed"] and not c["ok"]] == ["sandbox"]
    program_that(own_folder, monkeypatch, "echo 'testbed needs Linux' >&2", "exit 4")
    with pytest.raises(tb.Unsupported, match="needs Linux"):
        tb.doctor()


def test_nothing_but_the_standard_library_is_imported():
    code = "import sys, testbed, testbed.churn; print([m for m in ('numpy', 'pandas', 'matplotlib', 'tqdm') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": SRC}).stdout
    assert out == "[]\n"
