"""Where in the model a saved tensor of a compiled graph is, in words and as a site."""

from __future__ import annotations

import re
from typing import Any

from torch.fx import Node

from actzip.autograd import slots
from actzip.methods.base import Role, Site, site


def site_of(said: dict[str, Any], prefix: str) -> Site:
    """A site as its words say; `prefix` is the path of the module whose code was compiled."""
    module = ".".join(part for part in (prefix, said["module"]) if part)
    maker = slots.op(said["maker"])
    relu = bool(said["relu"])
    where = (module, said["node"], said["slot"], int(said["occurrence"]))
    return site(*where, Role(said["role"]), relu, slots.op(said["node"]), maker)


def module_path(node: Node | None, root: type | None) -> str:
    """The module that ran the op, from the session's model on if it is in the graph."""
    meta = {} if node is None else node.meta
    stack = meta.get("fwd_nn_module_stack") or meta.get("nn_module_stack") or {}
    entries = [(str(e[0]), e[1]) for e in stack.values() if isinstance(e, tuple)]
    if not entries:
        return ""
    path = _path(entries[-1][0])
    for name, kind in entries:
        if root is not None and (kind is root or kind == f"{root.__module__}.{root.__qualname__}"):
            return path.removeprefix(_path(name)).strip(".")
    return path


def _path(name: str) -> str:
    name = re.sub(r"^\w+\['[^']*'\]", "", name)
    name = re.sub(r"\._modules\['([^']+)'\]", r".\1", name)
    name = re.sub(r"\['?(\w+)'?\]", r".\1", name)
    return name.replace("_orig_mod", "").replace("..", ".").strip(".")
