"""All cases: one file per family, as in the table."""

from __future__ import annotations

import slot_cases_double_backward  # noqa: F401
import slot_cases_indexing  # noqa: F401
import slot_cases_layers  # noqa: F401
import slot_cases_pointwise  # noqa: F401
import slot_cases_pools  # noqa: F401
import slot_cases_reductions  # noqa: F401
import slot_cases_sequences  # noqa: F401
from slot_case import CASES, Case

__all__ = ["CASES", "Case"]
