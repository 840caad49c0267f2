"""What runs on the device; functions marked `triton.jit`, no Python beside them."""
