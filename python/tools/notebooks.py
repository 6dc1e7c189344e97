"""Execute the notebooks and write each as one HTML page.

    python tools/notebooks.py [NAME ...]   # docs/notebooks/NAME.html, of all if none is named
    python tools/notebooks.py --check      # fails if a page is older than its notebook

A page needs no network: pictures are embedded, and it has no scripts. Real runs differ
from time to time, so pages differ too; execute the notebooks on an idle machine.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, List

if TYPE_CHECKING:
    from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "python" / "notebooks"
PAGES = ROOT / "docs" / "notebooks"
LIMIT = 400_000  # bytes of a page

STYLE = """
body {max-width: 52rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff}
h1, h2 {line-height: 1.2; margin-top: 2rem}
pre, code {font: 13px/1.45 ui-monospace, monospace}
p code, li code {background: #f2f2f2; padding: 0 .2em}
.input_area pre {background: #f6f6f6; padding: .6rem; overflow-x: auto}
.output {overflow-x: auto; margin: 0 0 1rem .6rem}
.prompt, .anchor-link {display: none}
table {border-collapse: collapse; font-size: 14px}
table, th, td {border: 0}
th, td {padding: .2rem .6rem; border-bottom: 1px solid #ddd; text-align: left}
.dataframe :is(th, td) {white-space: nowrap}
.output_text pre {white-space: pre-wrap}
img {max-width: 100%}
"""


def names() -> List[str]:
    """The names of the notebooks."""
    return sorted(p.stem for p in NOTEBOOKS.glob("*.py"))


def read(name: str) -> NotebookNode:
    """A notebook that has not been executed."""
    import jupytext

    return jupytext.read(NOTEBOOKS / (name + ".py"), fmt="py:percent")


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Execute a notebook in a folder, where its records go. Raises CellExecutionError if
    a cell fails."""
    from nbclient import NotebookClient

    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()


def version(name: str) -> str:
    """What changes whenever the notebook's text does."""
    return hashlib.sha256((NOTEBOOKS / (name + ".py")).read_bytes()).hexdigest()[:16]


def version_of_page(name: str) -> str:
    """The version of the notebook that a page was made of; empty if there is no page."""
    page = PAGES / (name + ".html")
    found = re.search(r'<meta name="notebook" content="(\w+)">', page.read_text(encoding="utf-8")) if page.exists() else None
    return found[1] if found else ""


def page(notebook: NotebookNode, name: str) -> str:
    """The page of a notebook that has been executed."""
    from nbconvert import HTMLExporter
    from pygments.formatters import HtmlFormatter

    body, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    title = notebook.cells[0].source.splitlines()[0].lstrip("# ")
    style = HtmlFormatter(style="default").get_style_defs(".highlight") + STYLE
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="notebook" content="%s"><title>%s</title><style>%s</style>'
    text = "<!DOCTYPE html>\n<html lang=en>\n<head>%s</head>\n<body>\n%s\n</body>\n</html>\n" % (head % (version(name), html.escape(title), style), body)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def problems(text: str) -> List[str]:
    """What is wrong with a page."""
    found = []
    if len(text.encode()) > LIMIT:
        found.append("it has %d bytes; the limit is %d" % (len(text.encode()), LIMIT))
    if re.search(r"<(script|link|iframe)\b|(src|href)=.https?:", text):
        found.append("it needs scripts, style sheets or pictures from elsewhere")
    if tempfile.gettempdir() in text or str(ROOT) in text:
        found.append("it shows a path of this machine")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="execute nothing; fail if a page is older than its notebook")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    failed = False
    for name in args.names or names():
        if args.check:
            if version_of_page(name) != version(name):
                print("docs/notebooks/%s.html is older than its notebook; run python/tools/notebooks.py %s" % (name, name), file=sys.stderr)
                failed = True
            continue
        notebook = read(name)
        with tempfile.TemporaryDirectory() as folder:
            execute(notebook, Path(folder))
        text = page(notebook, name)
        for problem in problems(text):
            print("%s: %s" % (name, problem), file=sys.stderr)
            failed = True
        os.makedirs(PAGES, exist_ok=True)
        (PAGES / (name + ".html")).write_text(text, encoding="utf-8")
        print("docs/notebooks/%s.html: %d kB" % (name, len(text.encode()) // 1000))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
