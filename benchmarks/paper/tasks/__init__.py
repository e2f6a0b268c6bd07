"""Made-up tasks: text to train on, and items whose answer is right or wrong."""
