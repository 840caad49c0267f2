"""The forms as operators of torch: `torch.ops.actzip.group_encode` and so on, for compiled graphs.

`import actzip.kernels.ops` registers them; nothing else in the package does, so that importing
actzip costs nothing more. Each form has one schema. Its kernel takes the backend of the tensor's
device (`kernels.of`), its fake kernel says shapes alone. Encoders of groups.py and exact.py give a
size that follows from the shapes; those of sized.py one that follows from the values.

Seeds are int64 tensors on the device, so that a captured graph can be replayed with another.
"""

from actzip.kernels.ops.exact import (
    cast_convert,
    index_decode,
    index_encode,
    mask_decode,
    mask_encode,
    planes_pack,
    planes_unpack,
    window_decode,
    window_encode,
)
from actzip.kernels.ops.groups import (
    dual_decode,
    dual_encode,
    group_decode,
    group_encode,
)
from actzip.kernels.ops.sized import (
    bounded_decode,
    bounded_encode,
    bounded_entropy_decode,
    bounded_entropy_encode,
    entropy_decode,
    entropy_encode,
    fixedpoint_decode,
    fixedpoint_encode,
)

__all__ = [
    "bounded_decode",
    "bounded_encode",
    "bounded_entropy_decode",
    "bounded_entropy_encode",
    "cast_convert",
    "dual_decode",
    "dual_encode",
    "entropy_decode",
    "entropy_encode",
    "fixedpoint_decode",
    "fixedpoint_encode",
    "group_decode",
    "group_encode",
    "index_decode",
    "index_encode",
    "mask_decode",
    "mask_encode",
    "planes_pack",
    "planes_unpack",
    "window_decode",
    "window_encode",
]
