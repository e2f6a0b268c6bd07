"""The kinds of failure a user can meet.

Every text says what came, what is allowed, and what to do. Nothing here knows
about a subsystem; each module raises the kind that fits.
"""


class HeadstartError(Exception):
    """Base of all errors that are the caller's to act on."""


class ConfigError(HeadstartError):
    """A parameter, flag or setting is out of range, unknown, or without effect."""


class CheckpointError(HeadstartError):
    """A model file is missing, damaged, or not what it claims to be."""


class UnsupportedError(HeadstartError):
    """The request is valid, but this build, machine or model cannot serve it."""


class CapacityError(HeadstartError):
    """The request does not fit: context length, cache pages, or rows."""
