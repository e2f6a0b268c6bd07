"""Pretraining with several tokens predicted at every position, from scratch or on from a checkpoint."""
