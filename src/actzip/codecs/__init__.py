"""Number formats: each turns a tensor into a `Payload` and back; see base.py for the contract."""

from actzip.codecs.base import Codec
from actzip.codecs.bounded import Bounded
from actzip.codecs.cast import Cast
from actzip.codecs.centred import Centred
from actzip.codecs.dithered import Dithered
from actzip.codecs.dual import Dual
from actzip.codecs.fixedpoint import FixedPoint
from actzip.codecs.group import Group
from actzip.codecs.index import Index
from actzip.codecs.keep import Keep
from actzip.codecs.mask import BitMask
from actzip.codecs.payload import Payload, PayloadError
from actzip.codecs.rectified import Rectified
from actzip.codecs.registry import register, registered
from actzip.codecs.split import Split
from actzip.codecs.window import Window

__all__ = [
    "BitMask",
    "Bounded",
    "Cast",
    "Centred",
    "Codec",
    "Dithered",
    "Dual",
    "FixedPoint",
    "Group",
    "Index",
    "Keep",
    "Payload",
    "PayloadError",
    "Rectified",
    "Split",
    "Window",
    "register",
    "registered",
]
