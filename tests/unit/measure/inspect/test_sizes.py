from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from headstart.checkpoint.declared import DeclaredTensor
from headstart.measure.inspect import Report
from headstart.measure.inspect.modules import find_heads
from headstart.measure.inspect.names import canonical, num_parameters, stem

Inspect = Callable[..., Report]
Declared = Callable[..., Mapping[str, DeclaredTensor]]

BLOCK = {
    "eh_proj.weight": (16, 32), "enorm.weight": (16,), "hnorm.weight": (16,), "mlp.down_proj.weight": (16, 64),
}  # fmt: skip
GROUPED = {"self_attn.q_proj.weight": (16, 16), "self_attn.k_proj.weight": (8, 16), "self_attn.v_proj.weight": (8, 16)}
LATENT = {"self_attn.q_a_proj.weight": (12, 16), "self_attn.kv_a_proj_with_mqa.weight": (9, 16)}
FUSED = {"self_attn.qkv_proj.weight": (16 + 8 + 8, 16)}
COPIES = {"embed_tokens.weight": (64, 16), "shared_head.head.weight": (64, 16)}
CONFIG = {
    "model_type": "glm4_moe", "hidden_size": 16, "num_hidden_layers": 1, "num_nextn_predict_layers": 1,
    "num_attention_heads": 2, "head_dim": 8,
}  # fmt: skip


def checkpoint(*parts: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    module = {name: shape for part in parts for name, shape in part.items()}
    return {"model.embed_tokens.weight": (64, 16)} | {f"model.layers.1.{name}": shape for name, shape in module.items()}


def test_copies_of_the_trunks_matrices_are_no_part_of_the_heads(inspect_files: Inspect) -> None:
    sizes = inspect_files(CONFIG, checkpoint(BLOCK, GROUPED, COPIES)).sizes
    own = 16 * 32 + 16 + 16 + 16 * 64 + 16 * 16 + 2 * 8 * 16
    assert sizes.trunk_parameters == 64 * 16
    assert sizes.heads_parameters == own
    assert sizes.copied_parameters == 2 * 64 * 16
    assert sizes.total_parameters == own + 3 * 64 * 16
    assert (sizes.heads_bytes, sizes.copied_bytes) == (2 * own, 2 * 2 * 64 * 16)


@pytest.mark.parametrize(("attention", "values"), [(GROUPED, 16), (LATENT, 9), (FUSED, 16)])
def test_the_cache_is_what_attention_keeps(
    attention: dict[str, tuple[int, ...]], values: int, inspect_files: Inspect
) -> None:
    assert inspect_files(CONFIG, checkpoint(BLOCK, attention)).sizes.cache_bytes_per_token == 2 * values


def test_the_cache_of_packed_matrices_is_the_same(inspect_files: Inspect) -> None:
    packed = {"self_attn.k_proj.qweight": (2, 8), "self_attn.v_proj.qweight": (2, 8)}  # [in / 8, out]
    report = inspect_files(CONFIG, checkpoint(BLOCK, packed), kinds={"qweight": "I32"})
    assert report.sizes.cache_bytes_per_token == 2 * 16


def test_an_index_alone_gives_the_total(inspect_files: Inspect) -> None:
    sizes = inspect_files(CONFIG, checkpoint(BLOCK, GROUPED), index_only=True).sizes
    assert (sizes.total_bytes, sizes.total_parameters, sizes.cache_bytes_per_token) == (1234, None, None)


def test_formats_of_trunk_and_heads_stand_apart(inspect_files: Inspect) -> None:
    config = CONFIG | {"quantization_config": {"quant_method": "fp8"}}
    report = inspect_files(config, checkpoint(BLOCK, GROUPED), kinds={"embed_tokens.weight": "F8_E4M3"})
    assert report.sizes.trunk_formats == {"F8_E4M3": 64 * 16}
    assert set(report.sizes.heads_formats) == {"BF16"}
    assert report.quantisation == {"method": "fp8", "bits": 8}
    assert any("the heads are not (BF16)" in finding.text for finding in report.findings)


@pytest.mark.parametrize(
    ("name", "kind", "shape", "bits", "parameters"),
    [
        ("a.weight", "BF16", (4, 8), None, 32),
        ("a.qweight", "I32", (4, 8), 4, 256),  # eight codes of four bits in an element
        ("a.weight_packed", "I32", (4, 8), 8, 128),
        ("a.weight", "U8", (4, 8), None, 64),  # two of NVFP4
        ("a_blocks", "U8", (4, 8), None, 64),
        ("a.weight", "I8", (4, 8), 8, 32),
        ("a.scales", "F16", (4, 8), 4, 0),
        ("a.weight_scale_inv", "F32", (4, 8), 8, 0),
        ("a.qzeros", "I32", (4, 8), 4, 0),
        ("a.bias", "BF16", (8,), None, 8),
        ("d2t", "I64", (8,), None, 0),
        ("mlp.gate.e_score_correction_bias", "F32", (8,), None, 8),
    ],
)
def test_packed_values_are_counted_and_companions_are_not(
    name: str, kind: str, shape: tuple[int, ...], bits: int | None, parameters: int
) -> None:
    assert num_parameters(DeclaredTensor(name, kind, shape, 0), bits) == parameters


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("language_model.model.layers.0.x", "model.layers.0.x"),
        ("model.language_model.layers.0.x", "model.layers.0.x"),
        ("language_model.mtp.layers.0.x", "mtp.layers.0.x"),
        ("mtp.fc.weight", "mtp.fc.weight"),
    ],
)
def test_wrappers_are_taken_off(name: str, plain: str) -> None:
    assert canonical(name) == plain


def test_a_companion_belongs_to_no_value() -> None:
    assert stem("mtp.fc.weight") == stem("mtp.fc.qweight") == stem("mtp.fc.weight_packed") == "mtp.fc"
    assert stem("mtp.fc.scales") is stem("mtp.fc.bias") is stem("mtp.fc.weight_scale") is None


def test_without_a_number_of_layers_the_heads_are_still_told_from_the_trunk(declared: Declared) -> None:
    trunk = {f"model.layers.0.{name}": shape for name, shape in GROUPED.items()}
    found = find_heads(declared(trunk | checkpoint(BLOCK, GROUPED)), None)
    assert [module.index for module in found.modules] == [1]
    assert not any(name.startswith("model.layers.0.") for name in found.tensors)


def test_layers_beyond_the_trunk_that_are_no_heads_are_named(declared: Declared) -> None:
    found = find_heads(declared(checkpoint(GROUPED)), 1)
    assert found.layout is None
    assert "model.layers.1.self_attn.q_proj" in found.strays
