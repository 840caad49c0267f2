"""A hook of MkDocs: files that stand beside docs/ are pages too, their links as seen from there."""

from __future__ import annotations

from typing import Any

#: What CONTRIBUTING.md and CHANGELOG.md, which are included whole, say for what is a page here.
_PAGES = {"](docs/": "](", "](README.md": "](index.md"}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if page.file.src_uri not in ("contributing.md", "changelog.md"):
        return markdown
    with open(f"{page.file.src_uri.removesuffix('.md').upper()}.md") as file:
        text = file.read()
    for written, seen in _PAGES.items():
        text = text.replace(written, seen)
    return text
