"""The private names of torch: all there, and a refusal in one sentence when they are not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import actzip
from actzip import torch_private


def test_this_torch_has_every_private_name() -> None:
    assert torch_private.missing() == []


def test_the_oldest_torch_is_the_one_that_is_declared() -> None:
    project = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    assert f'dependencies = ["torch>={torch_private.OLDEST}"' in project


def test_compress_refuses_a_torch_that_lacks_a_name_before_it_touches_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OldSaved:
        def register_hooks(self) -> None: ...

    kinds = [(o, OldSaved if o == "SavedTensor" else k, n) for o, k, n in torch_private._ATTRIBUTES]
    monkeypatch.setattr(torch_private, "_ATTRIBUTES", kinds)
    monkeypatch.setattr(torch_private, "_missing", ["torch.overrides._push_mode"])
    model = nn.Linear(2, 2)
    wanted = (
        f"actzip needs torch {torch_private.OLDEST} or newer, as tested in docs/compatibility.md; "
        f"this is torch {torch.__version__}, which lacks torch.overrides._push_mode, "
        "SavedTensor.data, SavedTensor.unpack_hook"
    )
    for refused in (model, None):
        with pytest.raises(RuntimeError, match=f"^{re.escape(wanted)}$"):
            actzip.compress(refused)
    assert not model._forward_pre_hooks


def test_a_name_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "_missing", [])
    assert torch_private._private("torch._C", "_no_such.name") is None
    assert torch_private._private("torch._no_such_module", "name") is None
    assert torch_private.missing() == ["torch._C._no_such.name", "torch._no_such_module.name"]


SOURCE = Path(actzip.__file__).parent

#: Private names that are not torch's, or that are asked for where their absence is an answer.
ELSEWHERE = {
    "_getframe",  # Python's
    "_orig_mod",  # of a class that is known by its name, which has nothing else
    "_to_copy",  # an op, `aten._to_copy`
    "_call_impl",  # where it was seen to be there: `module_call`
}
#: Options and tensors that a node saved: each kind of node has others, the tables name them.
SAVED = ("_saved_", "_raw_saved_")


def _modules() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(SOURCE)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "torch_private.py"
    }


def _own(trees: dict[str, ast.Module]) -> Iterator[str]:
    """Names that actzip gives to functions, classes and attributes."""
    for node in (n for tree in trees.values() for n in ast.walk(tree)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def test_nothing_else_of_torch_that_is_private_is_used() -> None:
    """Where a file reads `t._version`, the list has it, and a torch without it is refused."""
    trees = _modules()
    listed = {name for _, _, names in torch_private._ATTRIBUTES for name in names}
    known = listed | ELSEWHERE | set(_own(trees))
    found = set()
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                name = node.attr
                private = name.startswith("_") and not name.startswith(("__", *SAVED))
                if private and name not in known:
                    found.add(f"{path}:{node.lineno}: {name}")
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
                parts = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
                if any(part.startswith("_") for part in parts):
                    found.add(f"{path}:{node.lineno}: import from {node.module}")
    assert not found
