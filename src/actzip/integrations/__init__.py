"""actzip in the trainers that people use; each module needs its framework, and nothing else."""
