"""Memory: measuring it (measure.py) and using it again (buffers.py)."""
