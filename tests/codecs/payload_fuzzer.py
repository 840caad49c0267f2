"""Damaged payloads through the public functions: a PayloadError or a tensor, and nothing else.

    python tests/codecs/payload_fuzzer.py --inputs 1000000 --seed 1 --kernels native

Input i of a seed is always the same: `run(seed, i)` repeats what a run met at i. Every decode into
memory of the caller's is watched: what lies before and behind must stay as it is.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import random
import resource
import time
from dataclasses import dataclass

import torch
from payload_mutations import damaged_bytes, damaged_payload
from payload_seeds import FLOATS, payloads
from torch import Tensor

from actzip import kernels
from actzip.codecs import Payload, PayloadError, Split
from actzip.codecs.memory_order import extent
from actzip.codecs.serial import from_bytes, to_bytes

_GUARD = 256  #: bytes before and behind
_MARK = 0xA5
_MOST = 1 << 16  #: elements of tensors that are decoded a second time


@dataclass(frozen=True)
class Corpus:
    """Honest payloads, as objects and as bytes."""

    payloads: list[Payload]
    raw: list[bytes]

    @staticmethod
    def make(*only: str) -> Corpus:
        """Of all codecs, or of those with these names."""
        found = [p for p in payloads() if not only or type(p.codec).__name__ in only]
        return Corpus(found, [to_bytes(payload) for payload in found])


def run(corpus: Corpus, seed: int, i: int) -> str:
    """Try one input; says what became of it. Anything but a PayloadError gets through."""
    rng = random.Random(seed << 40 | i)
    try:
        if rng.random() < 0.7:
            payload = from_bytes(damaged_bytes(rng, corpus.raw))
        else:
            payload = damaged_payload(rng, corpus.payloads)
        return _use(payload)
    except PayloadError:
        return "refused"


def _use(payload: Payload) -> str:
    codec = payload.codec
    decoded = codec.decode(payload)
    assert (tuple(decoded.shape), decoded.dtype) == (payload.shape, payload.dtype), "another tensor"
    if extent(payload.shape, payload.stride) > _MOST or payload.numel > _MOST:
        return "decoded, large"
    _watched(payload)
    if codec.keeps_mask and payload.dtype in FLOATS:
        codec.mask(payload)
    if isinstance(codec, Split):
        for piece in codec.pieces(payload):
            piece.payload.codec.decode(piece.payload)
    again = from_bytes(to_bytes(payload))
    assert torch.equal(again.data, payload.data), "other bytes"
    return "decoded"


def _watched(payload: Payload) -> None:
    """Decodes into the middle of a buffer, then once more with other strides."""
    size = extent(payload.shape, payload.stride) * payload.dtype.itemsize
    whole = torch.full((size + 2 * _GUARD,), _MARK, dtype=torch.uint8)
    inside = whole[_GUARD : _GUARD + size].view(payload.dtype)
    payload.codec.decode(payload, out=inside.as_strided(payload.shape, payload.stride))
    _untouched(whole[:_GUARD])
    _untouched(whole[_GUARD + size :])
    payload.codec.decode(payload, out=torch.empty(payload.shape, dtype=payload.dtype))


def _untouched(guard: Tensor) -> None:
    assert bool((guard == _MARK).all()), "decode wrote past the end of its output"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=570.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kernels", choices=["native", "reference"], default="native")
    parser.add_argument("--codecs", nargs="*", default=[], help="names; all unless told")
    given = parser.parse_args()
    faulthandler.enable()
    torch.set_num_threads(1)
    kernels.FORCED = given.kernels
    assert kernels.backend_name() == given.kernels
    corpus, start = Corpus.make(*given.codecs), time.monotonic()
    outcomes: collections.Counter[str] = collections.Counter()
    slowest, last = (0.0, 0), start
    for i in range(given.first, given.first + given.inputs):
        try:
            outcomes[run(corpus, given.seed, i)] += 1
        except BaseException:
            print(f"seed {given.seed}, input {i}", flush=True)
            raise
        now = time.monotonic()
        slowest, last = max(slowest, (now - last, i)), now
        if now - start > given.seconds:
            break
    done = sum(outcomes.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{given.kernels}, seed {given.seed}: {done} inputs in {last - start:.0f} s, "
        f"{dict(outcomes)}; slowest {slowest[0]:.2f} s (input {slowest[1]}), peak {peak} MiB"
    )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
