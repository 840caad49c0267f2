"""Memory: measuring it (measure.py), in a new process if need be (fresh_process.py), and using it
again (buffers.py)."""
