"""Runs the Python blocks of the pages, each page from top to bottom, and holds what they
print against the block below them that has no language."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = ["python/README.md", "docs/python.md"]


def blocks(page):
    """Of each Python block: its first line, its text, and what is said to be printed."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = list(BLOCK.finditer(text))
    for block, after in zip(found, found[1:] + [None]):
        if block[1] == "python":
            shown = after is not None and after[1] == "" and not text[block.end() : after.start()].strip()
            yield text.count("\n", 0, block.start()) + 2, block[2], after[2] if shown else None


@pytest.mark.parametrize("page", PAGES)
def test_blocks(page, real_network, own_folder):
    matplotlib = pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    matplotlib.use("Agg")
    import testbed as tb

    names = {"__name__": page}
    count = 0
    for line, code, printed in blocks(page):
        count += 1
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            try:
                exec(compile("\n" * (line - 1) + code, str(ROOT / page), "exec"), names)
            except tb.InvalidResult as err:  # this machine was too busy for a real run
                assert "fidelity" in str(err), (page, line)
        if printed is not None:
            assert out.getvalue() == printed, (page, line)
    assert count >= 3
