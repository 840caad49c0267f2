"""Real training jobs for the command line: data, models, loops."""
