# SPDX-License-Identifier: BSD-3-Clause
"""The site: README and docs, the Python package, the C header, executed notebooks.

    sphinx-build -W -c docs . build/site    # Debian: python3-sphinx python3-myst-parser

The program starmill must be in PATH: the notebooks run it and load the library next to it.
"""

import ast
import base64
import contextlib
import io
import json
import os
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(HERE)
HEADER = os.path.join(SOURCE, "libstarmill", "include", "starmill", "starmill.h")
sys.path.insert(0, os.path.join(SOURCE, "python"))

project = "starmill"
copyright = author = "the starmill developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
source_suffix = {".md": "markdown", ".ipynb": "markdown"}
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings have shapes and units
html_title = "starmill"


def shown(value):
    """What a notebook shows of a cell's value, as Markdown."""
    if hasattr(value, "savefig"):
        image = io.BytesIO()
        value.savefig(image, format="png", dpi=80)
        return f"![](data:image/png;base64,{base64.b64encode(image.getvalue()).decode()})"
    return f"```text\n{value}\n```"


def run_notebook(path):
    """Run the code cells of a notebook in order, in its folder; return the page as Markdown."""
    page, names = [], {"__name__": "__main__"}
    with open(path, encoding="utf-8") as file:
        cells = json.load(file)["cells"]
    os.chdir(os.path.dirname(path))
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            page.append(text)
            continue
        page.append(f"```python\n{text}\n```")
        code, said = ast.parse(text), io.StringIO()
        last = code.body.pop() if isinstance(code.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(said):
            exec(compile(code, path, "exec"), names)
            value = eval(compile(ast.Expression(last.value), path, "eval"), names) if last else None
        page += [f"```text\n{said.getvalue()}```"] * bool(said.getvalue())
        page += [shown(value)] * (value is not None)
    return "\n\n".join(page)


def header_page():
    """The functions and types of starmill.h, each below its comment."""
    with open(HEADER, encoding="utf-8") as file:
        text = file.read()
    begin, body = re.search(r"/\*\*(.*?)\*/.*?/\* begin \*/(.*)/\* end \*/", text, re.DOTALL).groups()
    page = [plain(begin), f"```c\n{body[:body.index('/**')].strip()}\n```"]
    for title, comment, code in re.findall(
            r"/\* -+ (.*?) -+ \*/|/\*\*(.*?)\*/\n(.*?)(?=\n/\*[* ]|\Z)", body, re.DOTALL):
        page.append(f"## {title[0].upper()}{title[1:]}" if title else
                    f"{plain(comment)}\n\n```c\n{code.replace('STARMILL_API ', '').strip()}\n```")
    return "\n\n".join(page)


def plain(comment):
    """A comment's text; its indented lists stay as they are."""
    lines = re.sub(r"(?m)^ \* {0,2}", "", comment).strip()
    return f"```text\n{lines}\n```"


def made(app, name, source):
    """Put generated parts into a page: notebooks' outputs, the header, the table of contents."""
    path = os.path.join(SOURCE, name + ".ipynb")
    if os.path.exists(path):
        source[0] = run_notebook(path) if app.config.run_notebooks else f"# {name}"
    elif name.endswith("starmill-h"):
        source[0] += header_page()
    elif name == root_doc:
        for room in ("use", "notebooks", "reference", "science", "develop"):
            pages = f"docs/{room}/*" + "\nCONTRIBUTING\nCHANGELOG" * (room == "develop")
            source[0] += f"\n```{{toctree}}\n:caption: {room}\n:hidden:\n:glob:\n\n{pages}\n```\n"


def finish(app, error):
    """Let the site begin with README, as the repository does."""
    if not error and app.builder.format == "html":
        shutil.copy(os.path.join(app.outdir, "README.html"), os.path.join(app.outdir, "index.html"))


def setup(app):
    app.add_config_value("run_notebooks", True, "env")
    app.connect("source-read", made)
    app.connect("build-finished", finish)
