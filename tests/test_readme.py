"""The README's figures are those of the committed results, and what it links to is there."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_table_is_what_the_results_say() -> None:
    tables = runpy.run_path(str(ROOT / "benchmarks" / "tables.py"))
    text = (ROOT / "README.md").read_text()
    assert tables["filled"](text) == text, "run python benchmarks/tables.py"
    assert text.count("<!-- table:") == 7


def test_every_link_leads_somewhere() -> None:
    for name in (
        "README.md",
        "CONTRIBUTING.md",
        *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")),
    ):
        page = ROOT / name
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
