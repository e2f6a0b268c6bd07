"""Heads: modules that guess the tokens after the next one, one file a kind."""

from headstart.architectures.heads.config import HeadKind, HeadsConfig
from headstart.architectures.heads.program import HeadsProgram, heads_program
from headstart.architectures.heads.stage import Stage

__all__ = ["HeadKind", "HeadsConfig", "HeadsProgram", "Stage", "heads_program"]
