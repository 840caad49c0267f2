"""Random PyTorch programs, run plain and under actzip, and compared."""
