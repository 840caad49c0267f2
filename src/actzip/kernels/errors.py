"""What a kernel raises when stored bytes make no sense."""

from __future__ import annotations


class DamagedError(ValueError):
    """Bytes that no encoder writes; codecs turn it into a PayloadError."""
