"""What a person reads: tables and explanations."""

from actzip.report.explain import explain, nothing
from actzip.report.table import as_html, table

__all__ = ["as_html", "explain", "nothing", "table"]
