"""A self-test for the machine it runs on: what is there, whether it is right, and how fast."""
