"""Executes the notebooks, as a reader would, and holds their pages against them."""

import os
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = runpy.run_path(str(ROOT / "python" / "tools" / "notebooks.py"))
SRC = str(ROOT / "python" / "src")


@pytest.fixture
def jupyter(monkeypatch):
    """What executes notebooks; in CI it has to be there."""
    for module in ("jupytext", "nbclient", "ipykernel", "matplotlib", "pandas"):
        try:
            __import__(module)
        except ImportError as err:
            (pytest.fail if os.environ.get("CI") else pytest.skip)("notebooks need %s: pip install %s" % (err.name, module))
    monkeypatch.setenv("PYTHONPATH", SRC, prepend=os.pathsep)


BUSY = "calibrate on a machine that does nothing else"


def execute(notebook, folder, tries=3):
    """The outputs of a notebook. A machine that others keep busy cannot calibrate, and says
    so: it is measured again, and what stands there then is that advice."""
    from nbclient.exceptions import CellExecutionError

    for n in range(tries):
        try:
            (folder / str(n)).mkdir()
            TOOL["execute"](notebook, folder / str(n))
            break
        except CellExecutionError as err:
            if BUSY not in str(err):
                raise
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


@pytest.mark.parametrize("name", TOOL["names"]())
def test_notebook(name, jupyter, real_network, own_folder):
    outputs = execute(TOOL["read"](name), own_folder)
    assert any(o.output_type in ("display_data", "execute_result") for o in outputs)
    assert not [o.text for o in outputs if o.get("name") == "stderr"]


def test_progress_in_a_notebook(jupyter, own_folder):
    """No word of ipywidgets, which nobody has to have."""
    import nbformat

    cell = nbformat.v4.new_code_cell("import testbed as tb\ntb.sweep('homogeneous', {'inner_steps': [1, 2]}, progress=True);")
    outputs = execute(nbformat.v4.new_notebook(cells=[cell]), own_folder)
    assert "4 of 4" in "".join(o.text for o in outputs), outputs
    assert "Warning" not in str(outputs)


@pytest.mark.parametrize("name", TOOL["names"]())
def test_page(name):
    assert TOOL["version_of_page"](name) == TOOL["version"](name), "run python/tools/notebooks.py %s" % name
    assert TOOL["problems"]((TOOL["PAGES"] / (name + ".html")).read_text(encoding="utf-8")) == []


def test_pages_of_notebooks_alone():
    assert sorted(p.stem for p in TOOL["PAGES"].glob("*.html")) == TOOL["names"]()
    assert len(TOOL["names"]()) == 4
