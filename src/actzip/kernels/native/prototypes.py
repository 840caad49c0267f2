"""The entries of the C++ library and their parameters, in order.

A letter each: i a number, u an unsigned one (a seed), r memory that is read, w memory that is
written. The library exports what it was compiled with (csrc/common/entry.hpp), and is not loaded
when that is not what stands here.
"""

from __future__ import annotations

import ctypes

PROTOTYPES = {
    # bounded/bounded.cpp
    "bounded_encode": "riiriiuiiiwwwwi",
    "bounded_gather": "riiriiuiiiwrrrwwi",
    "bounded_decode": "rrriiriiuiiiwi",
    # bounded/entropy.cpp
    "bounded_count": "riiriiuiiiiwi",
    "bounded_squeeze": "riiriiuiiiriiwwwwwi",
    "bounded_squeeze_gather": "riiriiuiiiriiwwrrrrwi",
    "bounded_unsqueeze": "rrrrriiiiriiuiiiwi",
    # dithered/dithered.cpp
    "dithered_count": "riiriiuiiwwi",
    "dithered_chosen": "iww",
    "dithered_given": "riw",
    "dithered_encode": "riiriiuiwwwi",
    "dithered_gather": "riiriiuiwrwwi",
    "dithered_decode": "riiriiuiwwwi",
    # dual/dual.cpp
    "dual_encode": "riiiiiiirriiuwwwi",
    "dual_decode": "rrwiiiiiiirriiuwi",
    # dual/last.cpp
    "dual_last_encode": "riiiiiiiirriiuwwwi",
    "dual_last_decode": "rrwiiiiiiiirriiuwi",
    # entropy/entropy.cpp
    "entropy_count": "riwi",
    "entropy_encode": "ririwwwi",
    "entropy_gather": "ririrrrrwi",
    "entropy_decode": "rrriiwi",
    # exact/index.cpp
    "index_range": "riiwi",
    "index_encode": "riiiiwi",
    "index_decode": "rwiiiii",
    # exact/mask.cpp
    "mask_encode": "riiiuwi",
    "mask_decode": "rwiiui",
    # exact/planes.cpp
    "planes_pack": "riiwi",
    "planes_unpack": "riiwi",
    # exact/window.cpp
    "window_encode": "rirwi",
    "window_decode": "rirwi",
    # fixedpoint/fixedpoint.cpp
    "fixedpoint_range": "riiiiwi",
    "fixedpoint_encode": "riirrriiuiiwwwi",
    "fixedpoint_gather": "riirrriiuiirrrwwi",
    "fixedpoint_decode": "rriirriiuiiwi",
    # norm/norm.cpp
    "norm_channels": "riirriiirrwi",
    "norm_rows": "riiirrrrwi",
    # group/group.cpp
    "group_nonzero": "rwiiiiirri",
    "group_encode": "riiiirriiuwi",
    "group_raw": "riiiirrw",
    "group_decode": "rwiiiirriiui",
}


def difference(loaded: ctypes.CDLL) -> str:
    """The first entry that the library has otherwise, in words; empty when there is none."""
    for name, declared in PROTOTYPES.items():
        try:
            found = ctypes.c_char_p.in_dll(loaded, f"actzip_{name}_signature").value
        except ValueError:
            return f"it has no {name}"
        if found != declared.encode():
            return f"its {name} takes {(found or b'').decode()} and not {declared}"
    return ""
