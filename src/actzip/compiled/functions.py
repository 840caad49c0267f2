"""ATen functions by what they make of a tensor: the same elements, a product, something bent.

What is in none of these lists is not understood, and what it reads stays exact.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: The elements, in another order or place, in another dtype, or summed.
PASS = _words(
    """
    view _unsafe_view reshape permute transpose t expand squeeze unsqueeze slice select split
    split_with_sizes unbind clone alias detach _to_copy convert_element_type contiguous neg sum
    mean cat stack add sub rsub roll flip repeat as_strided diagonal constant_pad_nd
    slice_scatter select_scatter slice_backward select_backward copy lift_fresh_copy
    _reshape_alias unfold movedim cumsum broadcast_in_dim upsample_nearest2d avg_pool2d
    _adaptive_avg_pool2d pixel_shuffle pixel_unshuffle tril triu
    """
)
#: The same of one of their arguments, by its place; the others are indices and masks.
PLACED: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("index_select", "index", "_unsafe_index", "embedding", "gather"), (0,)),
    **dict.fromkeys(("masked_fill", "embedding_dense_backward"), (0,)),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), (0, 2)),
    **dict.fromkeys(("scatter", "scatter_add", "index_add", "_unsafe_masked_index"), (0, 3)),
    "_unsafe_masked_index_put_accumulate": (0, 3),
}
#: Linear in each of their arguments.
PRODUCT = _words(
    """
    mul mm bmm addmm baddbmm matmul convolution dot mv addmv addcmul linear addbmm outer einsum
    tensordot fma
    """
)
#: Bent, without a jump.
SMOOTH = _words(
    """
    erf exp tanh sigmoid sin cos square silu gelu mish softplus _softmax _log_softmax exp2 expm1
    erfc atan sinh cosh
    """
)
#: Bent without a bound, or with exponentials in it.
STEEP = _words("exp exp2 expm1 sinh cosh _softmax _safe_softmax softmax")
#: Cheap, of one element each, with bounded slopes: made again in backward (derive.py).
TAME = _words(
    """
    view reshape permute transpose t expand squeeze unsqueeze clone alias detach _unsafe_view
    contiguous _to_copy convert_element_type neg add sub mul gelu silu sigmoid tanh leaky_relu elu
    mish softplus hardswish hardsigmoid erf abs clamp clamp_min clamp_max
    """
)
SUMS = _words("add sub")
QUOTIENT = _words("div reciprocal")
#: Element by element: what is smaller is spread over what is larger.
POINTWISE = _words("add sub rsub mul div where addcmul fma")
#: Of a ReLU's result these ask one bit.
SIGN = _words("le gt threshold_backward")
#: Give a new tensor, or a number, of which only the shape is taken from the old.
SHAPE = _words("empty_like zeros_like ones_like full_like new_zeros sym_size")
#: The tensor itself under another name, in another shape or dtype.
ITSELF = _words(
    """
    view reshape permute transpose t alias detach clone _unsafe_view contiguous _to_copy
    convert_element_type
    """
)
#: In the same memory.
VIEWS = _words(
    """
    alias detach view _unsafe_view permute transpose t expand squeeze unsqueeze slice select
    as_strided reshape split_with_sizes split
    """
)
#: In the same memory and of the same shape, or of another one.
ALIASES = _words("alias detach")
RESHAPED = ALIASES | _words("view _unsafe_view reshape")
TURNED = _words("permute transpose t squeeze unsqueeze")
#: Parts of the names of what gives random numbers.
NOISE = _words("rand dropout bernoulli normal philox rng")
