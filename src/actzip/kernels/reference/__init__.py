"""Plain PyTorch on any device: the oracle that the C++ library must equal byte for byte."""
