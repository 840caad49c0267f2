"""What a person reads: tables and explanations."""

from actzip.report.explain import explain, nothing
from actzip.report.table import table

__all__ = ["explain", "nothing", "table"]
