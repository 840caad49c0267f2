"""Writes docs/api.md from the docstrings of the public names: python tools/api_page.py"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import actzip

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
_HEAD = """# API

Every public name, from its docstring. Made by `tools/api_page.py`; a test keeps it so.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD, *_names("actzip", actzip), *_names("actzip.codecs", actzip.codecs)]
    return "\n".join(parts)


def _names(path: str, module: ModuleType) -> list[str]:
    found = [f"## {path}\n", f"{inspect.getdoc(module)}\n"] if path != "actzip" else []
    for name in sorted(module.__all__, key=str.lower):
        what = getattr(module, name)
        if not isinstance(what, ModuleType):
            found += _entry(f"{path}.{name}", what)
    return found


def _entry(path: str, what: Any) -> list[str]:
    found = [f"### {path}{_signature(what)}\n", _text(what)]
    if inspect.isclass(what):
        for name, member in sorted(_members(what).items()):
            if not name.startswith("_"):
                found += _member(name, member)
        found.append("")
    return found


def _members(what: type) -> dict[str, Any]:
    """Its own, and those of the parts that it is made of: bases of ours without an entry."""
    public = {id(getattr(module, n)) for module in (actzip, actzip.codecs) for n in module.__all__}
    found: dict[str, Any] = {}
    for base in reversed(what.__mro__):
        is_part = base.__module__.startswith("actzip.") and id(base) not in public
        if base is what or is_part:
            found |= vars(base)
    return found


def _member(name: str, member: Any) -> list[str]:
    if isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    if isinstance(member, property) and member.__doc__:
        return [f"- **`{name}`**: {_first(member)}"]
    if inspect.isfunction(member) and member.__doc__:
        return [f"- **`{name}{_signature(member)}`**: {_first(member)}"]
    return []


def _signature(what: Any) -> str:
    if inspect.isclass(what) and not dataclasses.is_dataclass(what):
        return ""
    try:
        signature = inspect.signature(what)
    except (TypeError, ValueError):
        return ""
    given = [p for p in signature.parameters.values() if p.name != "self"]
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in given]
    return re.sub(r"<[^>]*>", "…", str(inspect.Signature(bare)))


def _first(what: Any) -> str:
    """The first paragraph, in one line."""
    return " ".join((inspect.getdoc(what) or "").split("\n\n")[0].split())


def _text(what: Any) -> str:
    """The docstring; its tables of options stay as they are."""
    blocks = []
    for block in (inspect.getdoc(what) or "").split("\n\n"):
        is_table = re.search(r"^\S+  +\S", block, re.MULTILINE) or block.startswith("    ")
        blocks.append(f"```text\n{block}\n```" if is_table else block)
    return "\n\n".join(blocks) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE.name}: {len(page().splitlines())} lines\n")
