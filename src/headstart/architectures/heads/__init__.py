"""Heads: modules that guess the tokens after the next one, one file a kind."""

from headstart.architectures.heads.config import HeadKind, HeadsConfig
from headstart.architectures.heads.program import HeadsProgram, Stage, heads_program

__all__ = ["HeadKind", "HeadsConfig", "HeadsProgram", "Stage", "heads_program"]
