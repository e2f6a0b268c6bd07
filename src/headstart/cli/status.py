"""Exit statuses."""

FAILURE = 1
USAGE = 2
UNPROVEN = 3  # of `check`: nothing is wrong, and nothing was drafted either
INTERRUPTED = 130  # as a shell reports a program that SIGINT ended
BROKEN_PIPE = 141  # and one that SIGPIPE ended
