"""A short run of the fuzzer; docs/fuzzing.md has the long ones."""

from __future__ import annotations

import collections

import pytest
from payload_fuzzer import Corpus, run

#: The twin is many times slower.
INPUTS = {"native": 4000, "reference": 1000}


@pytest.mark.filterwarnings("ignore:.*support is experimental")  # torch, of 16-bit complex numbers
def test_damaged_payloads_are_refused_or_decoded(backend: str) -> None:
    corpus = Corpus.make()
    met = collections.Counter(run(corpus, 15, i) for i in range(INPUTS[backend]))
    assert sum(met.values()) == INPUTS[backend]
    assert met["refused"] > INPUTS[backend] // 2, "most of the damage is found"
    assert met["decoded"] > INPUTS[backend] // 20, "some of it reaches the kernels"
