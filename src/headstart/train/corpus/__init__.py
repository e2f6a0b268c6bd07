"""Text for pretraining: sources to shards of tokens, and shards to packed windows.

`prepare_corpus` writes a folder once; `open_corpus` maps it into memory; `CorpusWindows` says which windows a step
trains on, as a function of seed and step alone. Nothing here imports torch.
"""

from headstart.train.corpus.prepare import CorpusConfig, Preparing, prepare_corpus
from headstart.train.corpus.store import Corpus, TokenStore, open_corpus
from headstart.train.corpus.windows import CorpusWindows, PackedWindows, validation_windows

__all__ = [
    "Corpus",
    "CorpusConfig",
    "CorpusWindows",
    "PackedWindows",
    "Preparing",
    "TokenStore",
    "open_corpus",
    "prepare_corpus",
    "validation_windows",
]
