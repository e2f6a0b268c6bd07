"""Claims about multi-token prediction, tried at a small scale. `run.py` is the command."""
