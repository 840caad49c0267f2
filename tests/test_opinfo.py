"""Every op and module that PyTorch tests its own autograd with, under every method."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pytest
import torch

import actzip
from actzip.autograd.slots.lookup import TABLE
from actzip.codecs import Group
from opinfo import (
    MODULES,
    OPS,
    TORCH,
    Run,
    assert_finite,
    assert_same,
    distance,
    is_in,
    of_sample,
    plain_run,
    samples,
    tensors,
    unknown_nodes,
)

# what PyTorch says about its own deprecated and experimental ops; and that a sample of a handful
# of elements had nothing to compress
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The samples are tiny, and the suite has a process for each core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


#: fp32 samples of each op that lossless is tried on; in other dtypes and for lossy methods fewer.
MOST, FEW = 6, 1

#: ‖Δg‖ in parts of ‖g‖, of 8 bits or a thousandth of the peak; a Transformer's is 0.07.
CLOSE = 0.1
#: Less close. Samples of the first have scores in the thousands, where the softmax is a maximum.
#: Scores of the others are up to 77, and the flash kernel, which from torch 2.14 on runs attention
#: of three dimensions too, has exp(score - logsumexp) of what it reads: nothing divides an error of
#: the scores out again, and noise as large on what plain PyTorch saves does the same.
STEEP = {"nn_functional_multi_head_attention_forward": torch.inf}
if TORCH >= (2, 14):
    STEEP["nn_functional_scaled_dot_product_attention"] = 0.3
    STEEP["torch_ops_aten__scaled_dot_product_flash_attention_for_cpu"] = 0.3

#: Their samples bring random numbers in double precision, and the input must be so, too.
DOUBLE = {"nn.FractionalMaxPool2d", "nn.FractionalMaxPool3d"}

#: Each lossy method as it is, and as precise as it can be.
LOSSY: dict[str, tuple[Any, Any]] = {
    "actnn": (actzip.ActNN(), actzip.ActNN(bits=8)),
    "division": (
        actzip.Division(),
        actzip.Division(bits=8, dense=8, norm=8, rows=8, activation=8, nonlinear=8),
    ),
    "comet": (actzip.Comet(), actzip.Comet(scope="all", rest_bits=8)),
    "acgc": (actzip.ACGC(), actzip.ACGC(e2=1e-6)),
    "fixed": (actzip.Fixed(), actzip.Fixed(Group(8), Group(8))),
}

#: Nodes without a row, and the op that makes each of them; whether the list is made for this torch.
UNKNOWN, COMPLETE = unknown_nodes(TORCH)


def check_nodes(made: set[str], known: Collection[str] = UNKNOWN, fails: bool = COMPLETE) -> None:
    """Nodes without a row are on the list; those of a torch without a list are only reported.

    To be asked last: what they save is kept exactly, and the gradients are compared anyway.
    """
    new = sorted(made - set(known))
    assert not (new and fails), f"{', '.join(new)}: a row for it, or a line in opinfo_unknown"
    if new:
        pytest.skip(f"gradients are equal; nodes that are new in this torch: {', '.join(new)}")


ops = pytest.mark.parametrize("name", OPS)
modules = pytest.mark.parametrize("name", MODULES)


@ops
def test_lossless_gives_an_ops_gradients_bit_for_bit(name: str) -> None:
    tried = 0
    made: set[str] = set()
    for sample in samples(name, torch.float32, MOST):
        plain = plain_run(name, sample)
        if plain is not None:
            made |= plain.unknown()
            assert_same(plain, of_sample(name, sample, "lossless"))
            tried += 1
    assert tried > 0
    check_nodes(made)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=["fp64", "bf16"])
@ops
def test_lossless_in_other_dtypes(name: str, dtype: torch.dtype) -> None:
    if not is_in(name, dtype):
        return
    for sample in samples(name, dtype, FEW):
        plain = plain_run(name, sample)
        if plain is not None:
            assert_same(plain, of_sample(name, sample, "lossless"))


@ops
def test_lossy_methods_give_finite_gradients_that_are_close_at_high_precision(name: str) -> None:
    for sample in samples(name, torch.float32, FEW):
        plain = plain_run(name, sample)
        if plain is None:
            continue
        for method, (usual, precise) in LOSSY.items():
            assert_finite(plain, of_sample(name, sample, usual))
            ours = of_sample(name, sample, precise)
            if assert_finite(plain, ours):
                assert distance(plain, ours) < STEEP.get(name, CLOSE), method


@pytest.mark.parametrize(("node", "name"), UNKNOWN.items())
def test_a_node_on_the_list_is_unknown_and_still_made(node: str, name: str) -> None:
    assert node not in TABLE
    if not COMPLETE:
        pytest.skip("this torch has no list of its own")
    plains = (plain_run(name, sample) for sample in samples(name, torch.float32, MOST))
    assert any(plain is not None and node in plain.unknown() for plain in plains)


def test_each_version_of_torch_has_its_own_list() -> None:
    lists = {version: unknown_nodes(version) for version in ((2, 10), (2, 13), (2, 15), (2, 99))}
    assert [complete for _, complete in lists.values()] == [True, True, True, False]
    of = {version: nodes for version, (nodes, _) in lists.items()}
    assert of[2, 13].keys() - of[2, 10].keys() == {"NextafterBackward0"}
    assert of[2, 13].keys() - of[2, 15].keys() == {"CholeskyBackward0"}
    assert len(of[2, 15].keys() - of[2, 13].keys()) == 10
    assert of[2, 13]["PolarBackward0"] == "polar"


def test_a_new_node_fails_where_the_list_is_complete_and_is_reported_elsewhere() -> None:
    check_nodes({"ABackward0"}, ["ABackward0"], fails=True)
    with pytest.raises(AssertionError, match="BBackward0: a row for it"):
        check_nodes({"ABackward0", "BBackward0"}, ["ABackward0"], fails=True)
    with pytest.raises(pytest.skip.Exception, match="new in this torch: BBackward0"):
        check_nodes({"ABackward0", "BBackward0"}, ["ABackward0"], fails=False)


# -- modules ---------------------------------------------------------------------------------


def of_module(name: str, given: Any, method: Any = None) -> Run:
    """One forward and backward of a new module in training mode."""
    torch.manual_seed(0)
    made = given.constructor_input
    module = MODULES[name].module_cls(*made.args, **made.kwargs).train()
    inputs = given.forward_input
    everything = [*tensors((inputs.args, inputs.kwargs)), *module.parameters()]
    return Run(lambda: module(*inputs.args, **inputs.kwargs), everything, method)


@modules
def test_every_module_trains_the_same_under_lossless_and_closely_under_the_others(
    name: str,
) -> None:
    info = MODULES[name]
    tried, dtype = 0, torch.float64 if name in DOUBLE else torch.float32
    made: set[str] = set()
    torch.manual_seed(0)
    for given in info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=True, training=True
    ):
        if tried == FEW or given.forward_input is None:
            break
        plain = of_module(name, given)
        made |= plain.unknown()
        assert_same(plain, of_module(name, given, "lossless"))
        for method, (usual, precise) in LOSSY.items():
            assert_finite(plain, of_module(name, given, usual))
            ours = of_module(name, given, precise)
            if assert_finite(plain, ours):
                assert distance(plain, ours) < CLOSE, method
        tried += 1
    assert tried > 0
    check_nodes(made)
