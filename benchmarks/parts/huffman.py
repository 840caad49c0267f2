"""Huffman coding of uint8 symbols, compiled on the spot: what range ANS is compared with."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Tensor

SOURCE = Path(__file__).with_name("huffman.cpp")
SPAN = 65536
ROOM = SPAN * 11 // 8 + 4 * 8 + 64  #: bytes between spans, as in the source


class Huffman:
    """Codes tensors of one length; memory is there before it is timed."""

    def __init__(self, n: int, threads: int) -> None:
        self._library = _library()
        self._n, self._threads = n, threads
        self._bytes = torch.zeros(-(-n // SPAN) * ROOM, dtype=torch.uint8)
        self._lengths = torch.zeros(256, dtype=torch.uint8)

    def table(self, counts: Tensor) -> None:
        self._library.huffman_lengths(_pointer(counts), _pointer(self._lengths))

    def encode(self, symbols: Tensor) -> int:
        """Bytes in use, with the table's lengths of four bits each."""
        args = (ctypes.c_int64(self._n), _pointer(self._lengths), _pointer(self._bytes))
        threads = ctypes.c_int64(self._threads)
        return int(self._library.huffman_encode(_pointer(symbols), *args, threads)) + 128

    def decode(self, out: Tensor) -> None:
        """Writes up to three bytes past the end of `out`'s n symbols."""
        args = (ctypes.c_int64(self._n), _pointer(self._lengths), _pointer(out))
        self._library.huffman_decode(_pointer(self._bytes), *args, ctypes.c_int64(self._threads))


def _pointer(x: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.data_ptr())


def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "huffman.so"
        flags = ["-O3", "-march=native", "-std=c++17", "-fopenmp", "-fPIC", "-shared"]
        subprocess.run(["g++", *flags, str(SOURCE), "-o", str(path)], check=True)
        loaded = ctypes.CDLL(str(path))
    loaded.huffman_encode.restype = ctypes.c_int64
    return loaded
