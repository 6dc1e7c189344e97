import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session", autouse=True)
def program(tmp_path_factory):
    """The program of this checkout, unless TESTBED_BINARY names another."""
    if "TESTBED_BINARY" not in os.environ:
        path = tmp_path_factory.mktemp("bin") / "testbed"
        subprocess.run(["go", "build", "-o", str(path), "./cmd/testbed"], cwd=ROOT, check=True)
        os.environ["TESTBED_BINARY"] = str(path)
    return os.environ["TESTBED_BINARY"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Records go to a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def processes_of(word):
    """The command lines of processes that hold a word."""
    found = []
    for p in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = p.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line and "pytest" not in line:
            found.append(line)
    return found


@pytest.fixture
def real_network():
    """Skips where this machine has no real networks; in CI that is a failure."""
    import testbed as tb

    try:
        missing = [c["name"] + ": " + c["detail"] for c in tb.doctor().data if c["needed"] and not c["ok"]]
    except tb.Unsupported as err:
        missing = [str(err)]
    if missing:
        if os.environ.get("CI"):
            pytest.fail("no real network on this machine: %s" % missing)
        pytest.skip("no real network on this machine: %s" % missing)


def played(*args, **options):
    """A run on a real network, whatever a busy machine did to its links meanwhile."""
    import testbed as tb

    try:
        return tb.run(*args, **options)
    except tb.InvalidResult as err:
        assert err.result is not None and err.result.fidelity.verdict == "invalid", err
        return err.result
