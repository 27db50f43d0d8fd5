"""The report of a run in a notebook: ``millhead.report.show("run")``.

The page is the one that ``millhead report RUN -o FILE`` writes; see docs/report.md.
"""

from __future__ import annotations

import errno
import html
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from millhead._command_line import find_command

__all__ = ["Page", "make", "show"]


class Page:
    """A report as a notebook shows it: the whole page in a frame of its own."""

    def __init__(self, text: str, height: int) -> None:
        self.text = text
        self.height = height

    def _repr_html_(self) -> str:
        # `srcdoc` keeps the page's styles and scripts from the notebook's, and needs no server.
        return (
            f'<iframe title="millhead report" srcdoc="{html.escape(self.text)}" '
            f'width="100%" height="{self.height}" frameborder="0" sandbox="allow-scripts"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<millhead report, {len(self.text)} characters>"


def make(*runs: str | os.PathLike[str]) -> str:
    """The page of one or more runs as text.

    Arguments:
        runs: run directories, events files, logs of Earthmover's or directories of ``millhead bench``.

    Raises:
        FileNotFoundError: there is no such run.
        RuntimeError: a run cannot be read; the message is the command's.
    """
    if not runs:
        raise TypeError("give at least one run")
    for run in runs:
        if not os.path.exists(run):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(run))
    program = find_command()
    if program is None:
        raise RuntimeError("no command millhead beside this Python: reinstall millhead")
    with tempfile.TemporaryDirectory(prefix="millhead-report-") as directory:
        page = Path(directory) / "report.html"
        paths = [os.fspath(run) for run in runs]
        command = [program, "report", "-o", str(page), "--", *paths]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(
                done.stderr.strip() or f"millhead report ended with {done.returncode}"
            )
        return page.read_text(encoding="utf-8")


def show(*runs: str | os.PathLike[str], height: int = 900) -> Page | None:
    """Shows the report of one or more runs in a notebook.

    >>> import millhead.report
    >>> millhead.report.show("run")  # doctest: +SKIP

    Where no notebook runs, the page is returned, for ``print(page.text)`` or a file.

    Raises:
        FileNotFoundError: there is no such run.
        RuntimeError: a run cannot be read; the message is the command's.
    """
    page = Page(make(*runs), height)
    ipython = sys.modules.get("IPython")  # a notebook has it loaded; nobody else needs it
    if ipython is None or ipython.get_ipython() is None:
        return page
    ipython.display.display(page)
    return None
