"""Exit statuses."""

FAILURE = 1
USAGE = 2
INTERRUPTED = 130  # as a shell reports a program that SIGINT ended
BROKEN_PIPE = 141  # and one that SIGPIPE ended
