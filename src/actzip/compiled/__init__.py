"""Inside torch.compile: what compiled graphs save, packed by the graphs themselves."""

from actzip.compiled.installation import partition

__all__ = ["partition"]
