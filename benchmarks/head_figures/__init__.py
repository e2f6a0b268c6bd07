"""What trained heads are worth: the parts of `benchmarks/heads.py`."""
