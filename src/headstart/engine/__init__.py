"""Many sequences, one trunk: scheduling, cache accounts, stopping, and the step that ties them together."""

from headstart.engine.engine import Engine
from headstart.engine.sequence import token_hash
from headstart.engine.statistics import EngineStatistics
from headstart.engine.text import StreamDecoder, Tokenizer

__all__ = ["Engine", "EngineStatistics", "StreamDecoder", "Tokenizer", "token_hash"]
