"""What a reader should know of a checkpoint's heads: contradictions, gaps, and traps for who loads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from headstart.measure.inspect.case import Case
from headstart.measure.inspect.names import canonical, holds_values, num_outputs, stem
from headstart.measure.inspect.settings import lookup, whole

Level = Literal["problem", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence, and how grave it is: a problem makes heads useless, a warning may, a note is for loaders.

    Attributes:
        level: "problem", "warning" or "note".
        text: for people.
    """

    level: Level
    text: str


def find_out(case: Case) -> tuple[Finding, ...]:
    """All findings, the gravest first."""
    order: tuple[Level, ...] = ("problem", "warning", "note")
    found = [finding for check in _CHECKS for finding in check(case)]
    return tuple(sorted(found, key=lambda finding: order.index(finding.level)))


def _unseen(case: Case) -> Iterator[Finding]:
    absent = case.description.absent_files
    if case.description.format == "pickled":
        yield Finding(
            "warning",
            "The weights are pickled, or not here. Pickles can run code, so they are not opened: only the settings "
            "speak here.",
        )
    elif case.description.tensors is None:
        yield Finding("warning", f"Parts of the model are missing: {', '.join(absent)[:300]}.")
    elif absent:
        yield Finding(
            "note",
            f"{len(absent)} of the shards that the index names are not here, so names are known but no sizes. An "
            "index can also speak of tensors that its shards lack.",
        )


def _unlisted(case: Case) -> Iterator[Finding]:
    if files := case.description.unlisted_files:
        yield Finding(
            "warning",
            f"The index does not name {', '.join(files)[:300]}. Most loaders go by the index and never see what is in "
            "there, nor does this report; inspect such a file by itself.",
        )


def _promise_against_tensors(case: Case) -> Iterator[Finding]:
    promised, present = case.promise.count, case.present
    if promised is None or present is None or promised == present:
        return
    by = case.promise.by
    if present == 0 and not case.heads.modules:
        yield Finding(
            "problem",
            f"{by} promises {promised}, but no tensors of heads are here. Whoever wrote these files dropped them, as "
            "most quantisers and fine-tuning programs do. Take the original's, or graft heads.",
        )
    elif promised == 0:
        said = f"{by} is 0" if by is not None else "no setting speaks of them"
        yield Finding(
            "problem" if by is not None else "warning",
            f"The tensors hold {present}, but {said}. Engines that go by the settings will not load them.",
        )
    else:
        yield Finding("problem", f"{by} promises {promised}, but {present} complete are here.")


def _gaps(case: Case) -> Iterator[Finding]:
    for module in case.heads.modules:
        if module.missing:
            which = "The heads lack" if module.index is None else f"Module {module.index} lacks"
            yield Finding("problem", f"{which} the {', the '.join(module.missing)}.")


def _strays(case: Case) -> Iterator[Finding]:
    strays = case.heads.strays
    if not strays:
        return
    shown = ", ".join(strays[:4]) + (f" and {len(strays) - 4} more" if len(strays) > 4 else "")
    if case.heads.layout is not None:
        yield Finding("note", f"Further tensors that belong to no module: {shown}.")
    elif case.present is None:
        yield Finding(
            "warning", f"There are tensors that may be heads, in a naming scheme that is not known here: {shown}."
        )
    else:
        yield Finding("problem", f"Some names look like heads, but no module is among them: {shown}.")


def _experts(case: Case) -> Iterator[Finding]:
    wanted = whole(case.settings, "n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
    for module in case.heads.modules:
        if module.experts == "fused" and case.description.format == "safetensors":
            yield Finding(
                "note",
                "The heads' experts are fused into one tensor; a loader that looks for one an expert finds none.",
            )
            return
        if module.experts == "separate" and wanted and module.num_experts != wanted:
            yield Finding(
                "problem",
                f"Module {module.index} has {module.num_experts} experts, but the settings speak of {wanted}: trunk "
                "and heads were not pruned alike.",
            )


def _projection(case: Case) -> Iterator[Finding]:
    """A joint projection takes two vectors and gives one."""
    if case.heads.layout is None or case.heads.layout.kind != "sequential" or not case.description.has_shapes:
        return
    hidden = whole(case.settings, "hidden_size")
    pattern = re.compile(r".*(?:eh_proj|input_proj|mtp\.fc|mtp_linear_proj\.\d+)")
    for name, tensors in case.heads.tensors.items():
        for tensor in tensors:
            is_plain = tensor.kind in ("F32", "F16", "BF16") and holds_values([tensor])
            if pattern.fullmatch(name) and is_plain and hidden:
                if tensor.shape == (2 * hidden, hidden):
                    yield Finding(
                        "problem",
                        f"{tensor.name} is stored transposed: {list(tensor.shape)} in place of "
                        f"{[hidden, 2 * hidden]}. Some originals of ERNIE 4.5 are; loaders fail until it is turned.",
                    )
                elif tensor.shape != (hidden, 2 * hidden) and len(tensor.shape) == 2:
                    yield Finding(
                        "problem",
                        f"{tensor.name} is {list(tensor.shape)}; for this model it must be {[hidden, 2 * hidden]}. "
                        "The heads are another model's.",
                    )


def _copies(case: Case) -> Iterator[Finding]:
    if case.sizes.copied_parameters:
        yield Finding(
            "note",
            "The heads' files repeat the trunk's embedding or unembedding; engines use the trunk's own, so the copies "
            f"({case.sizes.copied_bytes} bytes) are read for nothing or not at all.",
        )


def _formats(case: Case) -> Iterator[Finding]:
    stated = lookup(case.settings, "quantization_config", "quantization")
    if stated is None or not case.sizes.heads_formats or case.is_drafter:
        return
    trunk, heads = next(iter(case.sizes.trunk_formats), None), next(iter(case.sizes.heads_formats))
    if trunk is not None and heads in ("BF16", "F16", "F32") and trunk not in ("BF16", "F16", "F32"):
        yield Finding(
            "note",
            f"The trunk is quantised ({trunk}), the heads are not ({heads}). A loader that does not know it, because "
            "no list of exceptions names them, reads them wrongly.",
        )


def _family_traps(case: Case) -> Iterator[Finding]:
    family = case.family
    if case.kind == "dspark" and case.heads.modules:
        yield Finding(
            "warning",
            "What stands under mtp.* is a DSpark drafter in stages, not modules of multi-token prediction. Who loads "
            "it by its prefix as these gets nonsense.",
        )
    if family is None or not case.heads.modules or case.description.format == "gguf":
        return
    if family.reversed_order:
        yield Finding("note", "The projection takes the state first and the embedding second, unlike most.")
    if family.zero_centred_norms:
        yield Finding("note", "Norms are stored less one: 1 must be added once, not twice.")
    if case.kind == "sequential" and case.present == 1:
        yield Finding("note", "One module: deeper guesses run it again and are right less often.")


def _eagle3(case: Case) -> Iterator[Finding]:
    if case.kind != "eagle3" or not case.settings or case.description.format == "gguf":
        return
    names = {stem(canonical(name)) for name in case.description.tensors or {}}
    vocab, drafted = whole(case.settings, "vocab_size"), whole(case.settings, "draft_vocab_size")
    vocab = whole(_mapping(case, "transformer_layer_config"), "vocab_size") or vocab
    if case.heads.modules and drafted and vocab and drafted < vocab and not names & {"d2t", "model.d2t"}:
        yield Finding(
            "problem",
            f"It guesses among {drafted} of {vocab} tokens, but d2t, which says which, is missing: its guesses mean "
            "other tokens.",
        )
    layers = lookup(case.settings, "eagle_aux_hidden_state_layer_ids")
    layers = layers or _mapping(case, "eagle_config").get("eagle_aux_hidden_state_layer_ids")
    if layers is None:
        yield Finding(
            "warning",
            "Nothing says which layers of the trunk it reads (eagle_aux_hidden_state_layer_ids). Engines then take "
            "2, L/2 and L-3 without a word; if it was trained on others, hardly a guess is right.",
        )
    if "speculators_model_type" in case.settings and "norm_before_residual" not in case.settings:
        yield Finding(
            "warning",
            "norm_before_residual is not stated: vLLM takes it for true, speculators for false.",
        )


def _mapping(case: Case, key: str) -> dict[str, object]:
    value = lookup(case.settings, key)
    return dict(value) if isinstance(value, dict) else {}


def _width(case: Case) -> Iterator[Finding]:
    """EAGLE's attention reads two vectors, its embedding and its state, side by side."""
    if case.kind != "eagle3" or not case.description.has_shapes:
        return
    for name, tensors in case.heads.tensors.items():
        if re.fullmatch(r"(?:model\.)?(?:midlayer|layers\.0)\.self_attn\.q_proj", name) and tensors[0].kind == "BF16":
            hidden = [num_outputs(t) for key, ts in case.heads.tensors.items() if key.endswith("fc") for t in ts[:1]]
            if hidden and len(tensors[0].shape) == 2 and tensors[0].shape[1] != 2 * hidden[0]:
                yield Finding(
                    "problem",
                    f"{tensors[0].name} takes {tensors[0].shape[1]} inputs; of an EAGLE-3 layer it must be "
                    f"{2 * hidden[0]}. The files are of another kind, or altered.",
                )


_CHECKS: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    _unseen, _unlisted, _promise_against_tensors, _gaps, _strays, _experts, _projection, _width, _copies, _formats,
    _family_traps, _eagle3,
)  # fmt: skip
