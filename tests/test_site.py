"""The documentation is a site that builds without a warning, and its pages are all reachable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_site_builds_and_warnings_are_errors(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="pip install mkdocs-material")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    pages = {p.relative_to(tmp_path / "site").parent.as_posix() for p in tmp_path.rglob("*.html")}
    sources = (ROOT / "docs").rglob("*.md")
    wanted = {
        (p.parent if p.name == "index.md" else p.with_suffix(""))
        .relative_to(ROOT / "docs")
        .as_posix()
        for p in sources
    }
    assert wanted <= pages
    contributing = (tmp_path / "site" / "contributing" / "index.html").read_text()
    assert 'href="../architecture/"' in contributing
    assert "codecs/sparse.py" in contributing
    home = (tmp_path / "site" / "index.html").read_text()
    assert "googleapis" not in home  # nothing is asked of another host
