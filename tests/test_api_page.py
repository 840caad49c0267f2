"""docs/api.md is what the docstrings say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import actzip

SCRIPT = Path(__file__).parent.parent / "tools" / "api_page.py"


def test_the_page_is_made_from_the_docstrings_of_every_public_name() -> None:
    spec = importlib.util.spec_from_file_location("api_page", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.page()
    assert module.PAGE.read_text() == text, "run python tools/api_page.py"
    for name in actzip.__all__:
        if name not in ("codecs", "memory"):
            assert f"### actzip.{name}" in text
    session = text.split("### actzip.Session\n")[1].split("###")[0]
    for said in ("stats()", "report(", "explain(", "gradient_noise(", "state_dict()", "live_bytes"):
        assert f"**`{said}" in session
