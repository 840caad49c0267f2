"""Every private name of torch that actzip uses, and whether this torch has them all.

Nothing here is promised by torch, so this is the one place to look at when a new torch comes out.
A name that is gone is None here, is named by `missing`, and `require` refuses before anything is
attached: never in the middle of a user's forward pass.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

_F = TypeVar("_F", bound=Callable[..., Any])

OLDEST = "2.10"  #: as declared in pyproject.toml

_missing: list[str] = []


def _private(module: str, name: str) -> Any:
    """`name`, perhaps with dots, of a module of torch; None when it is not there."""
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        _missing.append(f"{module}.{name}")
        return None
    return found


DisableTorchFunction = _private("torch._C", "DisableTorchFunction")
set_grad_enabled = _private("torch._C", "_set_grad_enabled")
get_tracing_state = _private("torch._C", "_get_tracing_state")
disabled_torch_function = _private("torch._C", "_disabled_torch_function_impl")
is_functorch_wrapped = _private("torch._C", "_functorch.is_functorch_wrapped_tensor")
transform_level = _private("torch._C", "_functorch.maybe_current_level")
pop_transform = _private("torch._C", "_functorch.pop_dynamic_layer_stack")
push_transform = _private("torch._C", "_functorch.push_dynamic_layer_stack")
dispatch_modes = _private("torch._C", "_len_torch_dispatch_stack")
dispatch_mode = _private("torch._C", "_get_dispatch_mode")
writing_down = _private("torch._C", "_TorchDispatchModeKey.PROXY")
profiler_enabled = _private("torch._C", "_autograd._profiler_enabled")
saved_tensors_hooks = _private("torch._C", "_autograd._top_saved_tensors_default_hooks")
current_mode = _private("torch.overrides", "_get_current_function_mode")
push_mode = _private("torch.overrides", "_push_mode")
pop_mode = _private("torch.overrides", "_pop_mode")
mode_stack = _private("torch.overrides", "_get_current_function_mode_stack")
current_graph_task_id = _private("torch._C", "_current_graph_task_id")
set_code_strategy = _private("torch._C._dynamo.eval_frame", "set_code_exec_strategy")
CodeStrategy = _private("torch._C._dynamo.eval_frame", "_FrameExecStrategy")
CodeAction = _private("torch._C._dynamo.eval_frame", "_FrameAction")
without_dispatch_modes = _private("torch.utils._python_dispatch", "_disable_current_modes")
tree_leaves = _private("torch.utils._pytree", "tree_leaves")
tree_map_only = _private("torch.utils._pytree", "tree_map_only")
make_wrapper_subclass = _private("torch", "Tensor._make_wrapper_subclass")
storage_from_weak = _private("torch", "UntypedStorage._new_with_weak_ptr")
free_weak = _private("torch", "UntypedStorage._free_weak_ref")
module_call = _private("torch.nn", "Module._call_impl")
try:  # for compiled graphs alone: without it they are left as they are
    from torch._guards import TracingContext as TracingContext
except ImportError:
    TracingContext = None  # type: ignore[assignment, misc]


def frame() -> int | None:
    """The number that Dynamo has for the code it compiles; the same when it compiles it anew."""
    context = getattr(importlib.import_module("torch._guards"), "CompileContext", None)
    current = getattr(context, "current_compile_id", None)
    number: int | None = getattr(None if current is None else current(), "frame_id", None)
    return number


if TYPE_CHECKING:
    from torch.multiprocessing.reductions import StorageWeakRef as StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
else:
    TorchDispatchMode = _private("torch.utils._python_dispatch", "TorchDispatchMode")
    StorageWeakRef = _private("torch.multiprocessing.reductions", "StorageWeakRef")

_DDP = (  # a build of torch may have none
    _private("torch.nn.parallel", "DistributedDataParallel") if dist.is_available() else None
)

#: What is asked of objects where they are used, as far as their types can tell.
_ATTRIBUTES: list[tuple[str, Any, tuple[str, ...]]] = [
    (
        "SavedTensor",
        _private("torch._C", "_autograd.SavedTensor"),
        ("data", "unpack_hook", "register_hooks"),
    ),
    (
        "the node AccumulateGrad",
        _private("torch._C", "_functions.AccumulateGrad"),
        ("_sequence_nr", "_input_metadata", "next_functions", "variable"),
    ),
    (
        "autograd.Function",
        _private("torch._C", "_FunctionBase"),
        ("_sequence_nr", "_raw_saved_tensors", "saved_tensors"),
    ),
    ("Tensor", Tensor, ("_version", "_base", "_is_zerotensor")),
    ("UntypedStorage", torch.UntypedStorage, ("_cdata", "_weak_ref")),
    (
        "Module",
        nn.Module(),
        ("_forward_pre_hooks", "_forward_hooks", "_parameters", "_buffers", "_compiled_call_impl"),
    ),
    ("DistributedDataParallel", _DDP, ("_get_active_ddp_module",)),
]


def missing() -> list[str]:
    """The private names that actzip needs and this torch does not have."""
    return [
        *_missing,
        *(
            f"{owner}.{name}"
            for owner, kind, names in _ATTRIBUTES
            for name in names
            if kind is not None and not hasattr(kind, name)
        ),
    ]


def require() -> None:
    """Raise, in one sentence, when actzip cannot work with this torch."""
    lacking = missing()
    if lacking:
        raise RuntimeError(
            f"actzip needs torch {OLDEST} or newer, as tested in docs/compatibility.md; this is "
            f"torch {torch.__version__}, which lacks {', '.join(lacking)}"
        )


def not_compiled(function: _F) -> _F:
    """Dynamo may inline this function, but neither it nor what it calls is compiled by itself: that
    would happen to every Python function that runs under `module.compile()`, and to every hook that
    autograd calls while compiled code runs `backward`."""
    if set_code_strategy is not None and CodeStrategy is not None:
        strategy = CodeStrategy(CodeAction.SKIP, CodeAction.SKIP)
        set_code_strategy(function.__code__, strategy)
    return function


def fake_tensors() -> Any:
    """The module of tensors without memory, imported when a plan is made."""
    return importlib.import_module("torch._subclasses.fake_tensor")


class compiler:  # a namespace
    """Parts of torch.compile, imported when something is compiled: that takes seconds."""

    @staticmethod
    def inductor_config() -> Any:
        return importlib.import_module("torch._inductor.config")

    @staticmethod
    def inductor_partition() -> Any:
        """The partition function that inductor gives to AOTAutograd."""
        return importlib.import_module("torch._inductor.compile_fx").partition_fn

    @staticmethod
    def inductor_partitioner(run: Any, uuid: Any, before: Any) -> Any:
        """`run` as inductor's configuration wants it; the user's own, if there is one, inside."""
        base = importlib.import_module("torch._inductor.custom_graph_pass").CustomPartitionerFn

        class Partitioner(base):  # type: ignore[misc, valid-type]
            def __call__(self, gm: Any, joint_inputs: Any, **kwargs: Any) -> Any:
                return run(gm, joint_inputs, **kwargs)

            def uuid(self) -> Any:
                return uuid() if before is None else (uuid(), before.uuid())

            def __reduce__(self) -> Any:  # caches pickle the configuration for their keys
                return str, (str(self.uuid()),)

        return Partitioner()

    @staticmethod
    def aot_backends() -> Any:
        return importlib.import_module("torch._dynamo.backends.common")

    @staticmethod
    def min_cut_partition() -> Any:
        module = importlib.import_module("torch._functorch.partitioners")
        return module.min_cut_rematerialization_partition

    @staticmethod
    def must_save() -> Any:
        """The mark of a node that the partitioner is to save if backward reads it."""
        return importlib.import_module("torch.utils.checkpoint").CheckpointPolicy.MUST_SAVE

    @staticmethod
    def turns_pictures(fw: Any) -> bool:
        """Whether inductor will lay out what is around a graph's convolutions in channels_last."""
        try:
            graph = importlib.import_module("torch._inductor.graph").GraphLowering
            return bool(graph.decide_layout_opt(fw, is_inference=False))
        except Exception:  # where it is another than we think, a copy is made: this is about speed
            return False

    @staticmethod
    def compiled_anything() -> bool:
        """Whether Dynamo has compiled code in this process."""
        module = importlib.import_module("torch._dynamo.convert_frame")
        return bool(module.input_codes.seen)
