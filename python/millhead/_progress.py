"""How far a command in Python is, on a terminal: a bar and a few words, as those in C show it."""

from __future__ import annotations

import os
import sys

COLUMNS = 20


class Line:
    """One line, written over and over; nothing where that cannot be."""

    def __init__(self) -> None:
        self.stream = sys.stderr  # what is on standard output may be read by a program
        self.shown = self.stream.isatty() and os.environ.get("TERM") != "dumb"

    def show(self, share: float, text: str) -> None:
        """Replace what is there."""
        if self.shown:
            bar = "=" * int(COLUMNS * share)
            self.stream.write(f"\r[{bar:{COLUMNS}}] {share:4.0%}, {text}\x1b[K")
            self.stream.flush()

    def end(self) -> None:
        """Leave no trace."""
        if self.shown:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
