"""Figures on the pages are those of the committed results, and what they link to is there."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_table_is_what_the_results_say() -> None:
    tables = runpy.run_path(str(ROOT / "benchmarks" / "tables.py"))
    seen: list[str] = []
    for page in tables["PAGES"]:
        text = page.read_text()
        assert tables["filled"](text) == text, f"{page.name}: run python benchmarks/tables.py"
        seen += re.findall(r"<!-- table:(\w+) -->", text)
    assert sorted(seen) == sorted(tables["TABLES"]), "every table has its place"


def test_every_link_leads_somewhere() -> None:
    for name in (
        "README.md",
        "CONTRIBUTING.md",
        *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")),
    ):
        page = ROOT / name
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
