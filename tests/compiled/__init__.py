"""A package: benchmarks/compiled.py, which is on the path as well, would be found first."""
