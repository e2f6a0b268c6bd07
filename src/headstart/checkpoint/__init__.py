"""Model files on one side, named tensors and a tokenizer on the other.

Reads GGUF files and folders of safetensors. Knows nothing of architectures:
what a tensor means is decided elsewhere. Weights stay in the file (memory
mapped) and in the number format they were stored in.
"""

from headstart.checkpoint.kinds import KINDS, Kind
from headstart.checkpoint.opening import Checkpoint, open_checkpoint
from headstart.checkpoint.packaged import packaged_model
from headstart.checkpoint.tensor import Tensor
from headstart.checkpoint.tokenizer import StreamDecoder, Tokenizer

__all__ = [
    "KINDS",
    "Checkpoint",
    "Kind",
    "StreamDecoder",
    "Tensor",
    "Tokenizer",
    "open_checkpoint",
    "packaged_model",
]
