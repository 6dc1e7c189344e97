"""Runs the program testbed, which does the work."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from .errors import InvalidResult, TestbedError, Unsupported, UsageError

# How long a run may take to end in good order when it is interrupted: it ends its
# processes and writes its record.
_PATIENCE = 30.0


@dataclass
class Progress:
    """The progress of a run, a comparison, a sweep or a search.

    policy: the policy of the current run; empty if the message is about no policy.
    seconds: the time since the start of the current run.
    done, of: the number of finished and of all rounds of a run, or points of a sweep.
    text: the last event.
    """

    policy: str
    seconds: float
    done: int
    of: int
    text: str


#: What progress may be given as: a function, True for a bar (of tqdm, where that is
#: installed, else lines), False for nothing.
ProgressOption = Union[bool, Callable[[Progress], None]]


def binary() -> str:
    """The path of the program testbed. It comes from the environment variable
    TESTBED_BINARY, from the wheel of this package, or from the PATH, in this order."""
    name = "testbed.exe" if os.name == "nt" else "testbed"
    given = os.environ.get("TESTBED_BINARY")
    if given:
        if not os.access(given, os.X_OK):
            raise TestbedError("TESTBED_BINARY is %s: it must be the path of an executable program" % given)
        return given
    schemes: List[Optional[str]] = [sysconfig.get_default_scheme()] if hasattr(sysconfig, "get_default_scheme") else [None]
    if os.name == "posix":
        schemes.append("posix_user")
    for scheme in schemes:
        path = Path(sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")) / name
        if os.access(path, os.X_OK):
            return str(path)
    # pip install --target DIR puts programs into DIR/bin.
    beside = Path(__file__).resolve().parent.parent / "bin" / name
    if os.access(beside, os.X_OK):
        return str(beside)
    found = shutil.which("testbed")
    if found:
        return found
    raise TestbedError("the program testbed is not installed: run pip install diloco-testbed, or set TESTBED_BINARY to the path of the program")


class _Bar:
    """Shows progress: one bar for each run, or lines if tqdm is missing."""

    def __init__(self) -> None:
        self._tqdm: Any = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # in a notebook without ipywidgets the bar is one of text
                from tqdm.auto import tqdm

            self._tqdm = tqdm
        except ImportError:
            pass
        self._bar: Any = None
        self._of: Any = None

    def __call__(self, p: Progress) -> None:
        if self._tqdm is None:
            print("%-9s %5.1f s  %s" % (p.policy, p.seconds, p.text), file=sys.stderr)
            return
        if self._of != (p.policy, p.of) or self._bar is not None and p.done < self._bar.n:
            self.close()
            self._of = (p.policy, p.of)
            self._bar = self._tqdm(total=p.of, desc=p.policy or None, leave=False)
        self._bar.update(p.done - self._bar.n)
        self._bar.set_postfix_str(p.text[:60])

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _tell(line: str, heard: Callable[[Progress], None], names: Mapping[str, str]) -> bool:
    """Reports whether a line of stderr is a line of progress, and shows it if so."""
    if not line.startswith("{"):
        return False
    try:
        m = json.loads(line)
        policy = m.get("policy", "")
        p = Progress(names.get(policy, policy), m["seconds"], m["done"], m["of"], m["text"])
    except (ValueError, KeyError):
        return False
    heard(p)
    return True


class Cancel:
    """Ends a command that runs in another thread, as Ctrl-C does.

        cancel = testbed.Cancel()
        threading.Timer(60, cancel).start()
        testbed.run(scenario, "straggler", cancel=cancel)   # raises KeyboardInterrupt after 60 s
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._cancelled = False

    def __call__(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._process is not None:
                _interrupt(self._process)

    def _of(self, process: Optional["subprocess.Popen[bytes]"]) -> None:
        with self._lock:
            self._process = process
            if process is not None and self._cancelled:
                _interrupt(process)


def _interrupt(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)


def call(
    args: Sequence[str],
    *,
    progress: ProgressOption = False,
    cancel: Optional[Cancel] = None,
    names: Optional[Mapping[str, str]] = None,
) -> bytes:
    """Runs the command and returns its output. Ctrl-C is passed on: the command ends its
    processes before KeyboardInterrupt is raised here.

    names: the names of policies to show in the progress, by the names that the command uses.

    Raises the exception of the exit code. InvalidResult has the printed result, as bytes.
    """
    command: List[str] = [binary(), *args]
    bar: Optional[_Bar] = None
    heard: Optional[Callable[[Progress], None]] = None
    if progress is True:
        heard = bar = _Bar()
    elif callable(progress):
        heard = progress
    if heard is not None:
        command += ["--progress", "json"]
    said: List[str] = []
    failed: List[BaseException] = []
    # A group of its own: a terminal's Ctrl-C reaches this process alone, which then
    # interrupts the command once.
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=os.name == "posix"
    )
    assert process.stdout is not None and process.stderr is not None
    stderr = process.stderr

    def listen() -> None:
        for raw in stderr:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            try:
                if heard is not None and not failed and _tell(line, heard, names or {}):
                    continue
            except BaseException as err:  # of the caller's function; raised below
                failed.append(err)
                _interrupt(process)
                continue
            said.append(line)

    ear = threading.Thread(target=listen, daemon=True)
    ear.start()
    interrupted: Optional[BaseException] = None
    if cancel is not None:
        cancel._of(process)
    try:
        try:
            out = process.stdout.read()
            process.wait()
        except BaseException as err:
            interrupted = err
            _interrupt(process)
            try:
                process.communicate(timeout=_PATIENCE)
            except (subprocess.TimeoutExpired, KeyboardInterrupt, ValueError):
                pass
            raise
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        ear.join(timeout=5)
        process.stdout.close()
        process.stderr.close()
        if bar is not None:
            bar.close()
        if cancel is not None:
            cancel._of(None)
    assert interrupted is None
    if failed:
        raise failed[0]
    if cancel is not None and cancel._cancelled:
        raise KeyboardInterrupt("cancelled")
    if process.returncode == 0:
        return out
    at = next((i for i in range(len(said) - 1, -1, -1) if said[i].startswith("testbed: ")), len(said) - 1)
    message = said[at] if said else ""
    if process.returncode == 2:  # a scenario may have several problems, a line each
        message = "\n".join(said[at:])
    message = message[len("testbed: ") :] if message.startswith("testbed: ") else message
    error = _error(out)
    if error is not None:
        out = b""
    else:
        error = {}
    if process.returncode == 2:
        raise UsageError(message)._at(error)
    if process.returncode == 3:
        raise InvalidResult(message or "the result is not valid", out)._at(error)
    if process.returncode == 4:
        raise Unsupported(message, out)._at(error)
    if process.returncode < 0:
        message = "testbed was ended by signal %d%s" % (-process.returncode, ": " + message if message else "")
    raise TestbedError(message or "testbed ended with exit code %d" % process.returncode)._at(error)


def _error(out: bytes) -> Optional[Dict[str, Any]]:
    """The error that a command has printed in place of a result, or None. Older programs print
    no error in place of a result."""
    if not out.startswith(b"{"):
        return None
    try:
        printed = json.loads(out)
    except ValueError:
        return None
    error = printed.get("error")
    return error if isinstance(error, dict) and len(printed) == 1 else None


def version() -> str:
    """The version of the program, such as "0.3.0"."""
    return str(json.loads(call(["version", "--json"]))["version"])
