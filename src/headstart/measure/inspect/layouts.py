"""By which tensor names heads are known: a table, one entry a naming scheme.

A prefix never decides. `mtp.*` holds classic modules in one family, block
drafters in another and left-over embeddings in a re-upload, so a scheme is
known by its *signature*, a tensor that nothing else has, and a module counts as
complete only with all of its *parts*.

Sources: the weight loaders of vLLM and SGLang (`models/*_mtp.py`,
`models/*_nextn.py`), llama.cpp's `gguf-py/gguf/constants.py`, DeepSeek-V3's
`README_WEIGHTS.md`, and the model cards of EAGLE, Medusa and Meta's multi-token
prediction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["sequential", "parallel", "medusa", "eagle", "eagle3", "assistant", "dspark"]

_ATTENTION = r"(?:.+\.)?(?:self_attn|attention|mixer)\.(?:q|k|v|o|qkv|q_a|q_b|kv_a|wq|wk)[\w]*"
_GGUF_ATTENTION = r"attn_(?:q|qkv|q_a|kv_a_mqa|output)"
_MLP = r"(?:.+\.)?(?:mlp|moe|feed_forward|block_sparse_moe)\..+"


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """A naming scheme. Patterns match whole names, without suffixes such as `.weight`.

    Attributes:
        name: of the scheme.
        kind: of the heads that it names.
        module: the beginning of a name; its group `index` numbers the modules, `head` is kept in front of what
            follows. A name without the index belongs to all modules.
        signature: the rest of a name that only this scheme has.
        parts: for each thing that a module cannot do without, the rest of its name.
        shared_parts: the same of what all modules share.
        is_appended: modules are numbered as layers that follow the trunk's.
        is_whole: the file is the drafter; the trunk is another checkpoint.
        starts: rests of names at which a module begins, if it spans several numbers.
        absent: the rest of a name that this scheme has not.
    """

    name: str
    kind: Kind
    module: str
    signature: str
    parts: Mapping[str, str] = field(default_factory=dict)
    shared_parts: Mapping[str, str] = field(default_factory=dict)
    is_appended: bool = False
    is_whole: bool = False
    starts: str | None = None
    absent: str | None = None

    def split(self, name: str) -> tuple[int | None, str] | None:
        """The module's number and the rest of a name; `None` if it is not of this scheme."""
        match = re.match(self.module, name)
        if match is None:
            return None
        groups = match.groupdict()
        index = groups.get("index")
        rest = ((groups.get("head") or "") + name[match.end() :]).rstrip(".")
        return (None if index is None else int(index)), rest


_DEEPSEEK_PARTS = {
    "projection": r"eh_proj",
    "norm of the embedding": r"enorm",
    "norm of the state": r"hnorm",
    "attention": _ATTENTION,
    "MLP": _MLP,
}

# Earlier entries are more particular: the first whose signature is found names the heads.
LAYOUTS: tuple[Layout, ...] = (
    Layout(
        name="step",
        kind="sequential",
        module=r"model\.layers\.(?P<index>\d+)\.",
        signature=r"(?:transformer\.)?shared_head\.output",
        parts=_DEEPSEEK_PARTS,
        is_appended=True,
    ),
    Layout(
        name="deepseek",
        kind="sequential",
        module=r"model\.layers\.(?P<index>\d+)\.",
        signature=r"eh_proj|enorm|hnorm|shared_head\..+",
        parts=_DEEPSEEK_PARTS,
        is_appended=True,
    ),
    Layout(
        name="qwen",
        kind="sequential",
        module=r"mtp\.(?:layers\.(?P<index>\d+)\.)?",
        signature=r"fc|pre_fc_norm_\w+",
        parts={"attention": _ATTENTION, "MLP": _MLP},
        shared_parts={
            "projection": r"fc",
            "norm of the embedding": r"pre_fc_norm_embedding",
            "norm of the state": r"pre_fc_norm_hidden",
            "final norm": r"norm",
        },
    ),
    Layout(
        name="nemotron",
        kind="sequential",
        module=r"mtp\.layers\.(?P<index>\d+)\.",
        signature=r"eh_proj",
        parts={
            "projection": r"eh_proj",
            "norm of the embedding": r"enorm",
            "norm of the state": r"hnorm",
            "attention": _ATTENTION,
            "final norm": r"final_layernorm",
        },
        starts=r"eh_proj",
    ),
    Layout(
        name="mimo",  # also that of speculators' files, without "model."
        kind="sequential",
        module=r"(?:model\.)?mtp_layers\.(?P<index>\d+)\.",
        signature=r"input_proj|token_layernorm|hidden_layernorm",
        parts={
            "projection": r"input_proj",
            "norm of the embedding": r"token_layernorm",
            "norm of the state": r"hidden_layernorm",
            "attention": _ATTENTION,
            "MLP": _MLP,
            "final norm": r"final_layernorm",
        },
    ),
    Layout(
        name="longcat",
        kind="sequential",
        module=r"model\.mtp\.(?:layers\.(?P<index>\d+)\.)?",
        signature=r"[eh]norm\.m",
        parts={
            "projection": r"eh_proj",
            "norm of the embedding": r"enorm\.m",
            "norm of the state": r"hnorm\.m",
            "attention": _ATTENTION,
            "MLP": _MLP,
        },
        shared_parts={"final norm": r"norm"},
    ),
    Layout(
        name="mimo_v2",
        kind="sequential",
        module=r"model\.mtp\.layers\.(?P<index>\d+)\.",
        signature=r"eh_proj|enorm|hnorm",
        parts={**_DEEPSEEK_PARTS, "final norm": r"final_layernorm"},
    ),
    Layout(
        name="ernie",
        kind="sequential",
        module=r"model\.(?P<head>mtp_[a-z_]+\.)(?P<index>\d+)\.?",
        signature=r"mtp_linear_proj|mtp_emb_norm|mtp_hidden_norm",
        parts={
            "projection": r"mtp_linear_proj",
            "norm of the embedding": r"mtp_emb_norm",
            "norm of the state": r"mtp_hidden_norm",
            "attention": r"mtp_block\." + _ATTENTION,
            "MLP": r"mtp_block\." + _MLP,
        },
    ),
    Layout(
        name="dspark",  # under the prefix of classic modules, but drafts in blocks
        kind="dspark",
        module=r"mtp\.",  # its numbers are stages of one drafter
        signature=r"(?:.+\.)?(?:main_proj|markov_head|confidence_head)(?:\..+)?",
    ),
    Layout(
        name="deepseek_v4",
        kind="sequential",
        module=r"mtp\.(?P<index>\d+)\.",
        signature=r"[eh]_proj",
        parts={
            "projection of the embedding": r"e_proj",
            "projection of the state": r"h_proj",
            "norm of the embedding": r"enorm",
            "norm of the state": r"hnorm",
        },
    ),
    Layout(
        name="meta",
        kind="parallel",
        module=r"extra_heads\.(?P<index>\d+)\.",
        signature=r"attention\.w[qkvo]",
        parts={"attention": r"attention\.wq", "MLP": r"feed_forward\.w1"},
    ),
    Layout(
        name="medusa",
        kind="medusa",
        module=r"(?:medusa_heads\.)?blocks\.(?P<index>\d+)\.",
        signature=r"layers\.\d+(?:\.linear)?",
        parts={"layer": r"layers\.0(?:\.linear)?"},
        is_whole=True,
    ),
    Layout(
        name="medusa_original",
        kind="medusa",
        module=r"(?:medusa_heads?\.)?(?P<index>\d+)\.",
        signature=r"(?:\d+|medusa_layers\.\d+)\.linear",
        parts={"layer": r"(?:0|medusa_layers\.0)\.linear"},
        is_whole=True,
    ),
    Layout(
        name="eagle3",
        kind="eagle3",
        module=r"(?:model\.)?",
        signature=r"midlayer\..+|layers\.0\.hidden_norm|d2t|blk\.0\.attn_norm_2",
        parts={
            "projection": r"fc",
            "attention": r"(?:midlayer(?:\.\d+)?|layers\.0)\.self_attn\..+|blk\.0\.attn_q",
            "norm of the state": r"(?:midlayer(?:\.\d+)?|layers\.0)\.hidden_norm|blk\.0\..*norm.*",
            "final norm": r"norm|output_norm",
        },
        is_whole=True,
    ),
    Layout(
        name="assistant",
        kind="assistant",
        module=r"(?:model\.)?",
        signature=r"(?:nextn\.)?pre_projection|(?:nextn\.)?post_projection",
        parts={
            "projection in": r"(?:nextn\.)?pre_projection",
            "projection out": r"(?:nextn\.)?post_projection",
            "attention": r"layers\.\d+\.self_attn\.q_proj|blk\.\d+\.attn_q",
        },
        is_whole=True,
    ),
    Layout(
        name="eagle",
        kind="eagle",
        module=r"(?:model\.)?",
        signature=r"fc",
        parts={"projection": r"fc", "attention": r"layers\.0\.self_attn\..+", "MLP": r"layers\.0\.mlp\..+"},
        is_whole=True,
        absent=r"layers\.0\.input_layernorm",
    ),
    Layout(
        name="nextn",
        kind="sequential",
        module=r"blk\.(?P<index>\d+)\.",
        signature=r"nextn\.\w+",
        parts={
            "projection": r"nextn\.eh_proj",
            "norm of the embedding": r"nextn\.enorm",
            "norm of the state": r"nextn\.hnorm",
            "attention": _GGUF_ATTENTION,
            "MLP": r"ffn_\w+",
        },
        is_appended=True,
    ),
)

LOOKS_LIKE_HEADS = re.compile(r"(?:model\.)?(?:mtp|nextn|extra_heads|medusa)[._].+")
"""Names that a reader would take for heads."""
