"""Every cause that a verdict may name has a page, and every page a cause."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HEADER = (ROOT / "include/millhead/diagnose.h").read_text()
CAUSES = re.findall(r'X\(MH_CAUSE_\w+, "([a-z-]+)"\)', HEADER)
PAGES = ROOT / "docs/verdicts"


def test_causes_and_pages_are_the_same() -> None:
    assert len(CAUSES) == 13
    assert sorted(CAUSES) == sorted(p.stem for p in PAGES.glob("*.md") if p.stem != "README")


@pytest.mark.parametrize("cause", CAUSES)
def test_a_page_says_what_how_and_what_to_do(cause: str) -> None:
    page = (PAGES / f"{cause}.md").read_text()
    assert page.startswith(f"# {cause}: ")
    for part in ("**What it means.**", "**How we know.**", "**What to do"):
        assert part in page
    assert f"\n    {cause}\n" in page  # an example of the output


def test_links_lead_somewhere() -> None:
    for page in PAGES.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).is_file(), f"{page.name}: {target}"
