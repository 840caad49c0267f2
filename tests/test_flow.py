"""The imports go one way: api -> autograd -> methods -> control -> codecs -> kernels."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import actzip

ROOT = Path(actzip.__file__).parent

#: What each part may import of the others. report and memory stand beside the flow.
ALLOWED = {
    "checks": set(),
    "entry_points": set(),
    "planning": {"torch_private"},
    "accelerator": set(),
    "kernels": {"planning", "accelerator"},
    "codecs": {"kernels", "checks", "entry_points"},
    "control": {"codecs", "kernels", "planning", "torch_private"},
    "methods": {"control", "codecs", "checks", "entry_points", "memory", "planning"},
    "torch_private": set(),
    "memory": {"torch_private", "planning", "accelerator"},
    "autograd": {"methods", "control", "codecs", "kernels", "memory", "warning", "torch_private"}
    | {"planning", "accelerator"},
    "compiled": {"autograd", "methods", "control", "codecs", "warning", "torch_private"},
    "report": {"autograd", "methods", "memory"},
    "noise": set(),
    "warning": set(),
    "numbers": {"noise", "report", "autograd", "methods"},
    "learning": {"numbers", "noise", "warning", "planning"}
    | {"autograd", "methods", "control", "memory"},
    "session": {"learning", "warning", "report"}
    | {"autograd", "methods", "control", "memory", "compiled"},
    "api": {"session", "methods", "warning", "torch_private"},
    "growth": {"api", "memory"},
    "instance": {"api", "methods"},
    "integrations": {"api", "instance", "methods", "warning"},
    "testing": {"codecs", "kernels"},
    "tasks": {"api", "report", "methods", "memory", "codecs", "accelerator"},
    "doctor": {"api", "accelerator", "kernels", "codecs", "memory", "testing", "tasks"},
    "plan": {"api", "report", "methods", "memory", "tasks", "planning", "torch_private"},
    "commands": {"api", "report", "methods", "memory", "codecs", "tasks", "plan", "planning"}
    | {"accelerator", "doctor"},
    "cli": {"api", "commands"},
    "__main__": {"cli"},
}


def _part(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    """Parts of actzip that a file imports; the package itself counts as its public names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {n.split(".")[1] if "." in n else "" for n in names if n.startswith("actzip")}
    return found


def test_every_part_imports_only_what_lies_below_it() -> None:
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        part = _part(path)
        if part == "__init__":
            continue
        for other in _imports(path) - {part}:
            parts = {child.stem for child in ROOT.iterdir()}
            # tasks and the command line use the library as a user does: by its public names
            public = part in ("tasks", "plan", "doctor", "commands", "cli") and other not in parts
            if other not in ALLOWED[part] and not public:
                wrong.append(f"{path.relative_to(ROOT)} imports {other or 'actzip'}")
    assert not wrong


def test_only_autograd_touches_pytorchs_graph() -> None:
    words = ("_raw_saved", "register_hooks", "next_functions", "grad_fn", "TorchFunctionMode")
    wrong = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in ROOT.rglob("*.py")
        if _part(path) not in ("autograd", "torch_private")
        for word in words
        if word in path.read_text()
    ]
    assert not wrong


def test_private_names_of_torch_are_taken_from_one_file() -> None:
    private = re.compile(
        r"torch\._(?!_|dynamo\b)\w+|torch\.\w+\._\w+|from torch[\w.]* import .*\b_\w+"
        r"|Tensor\._(?!_)\w+|UntypedStorage\._\w+|StorageWeakRef\._|multiprocessing\.reductions"
    )
    wrong = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in ROOT.rglob("*.py")
        if path.name != "torch_private.py"
        for found in private.finditer(path.read_text())
    ]
    assert not wrong


def test_the_kernels_need_no_torch_header() -> None:
    for path in (ROOT / "kernels" / "csrc").rglob("*.[ch]pp"):
        assert "<torch/" not in path.read_text()
        assert "<ATen/" not in path.read_text()
