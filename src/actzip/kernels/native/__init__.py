"""Binding to the C++ library in csrc/: one module per format, the twins of `reference`."""
