"""What a training step would take, from shapes alone: nothing is allocated, nothing trained."""
