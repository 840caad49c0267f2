"""The conformance kit: puts any codec through what `codecs/base.py` promises of all of them.

    from actzip.testing import conformance
    conformance(MyCodec(option=3))

It raises an AssertionError that names the first promise that does not hold.
"""

from actzip.testing.conformance import Promise, conformance, error_bound

__all__ = ["Promise", "conformance", "error_bound"]
