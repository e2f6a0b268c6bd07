"""Training: text that the model writes itself, targets, losses, and heads on a finished or a new trunk."""
