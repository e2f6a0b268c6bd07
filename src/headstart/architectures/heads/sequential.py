"""DeepSeek-V3's modules: norms of hidden and embedding, a projection of both, one block.

With one module and a depth above 1 the module is unrolled on its own output, as in FastMTP. An unrolled module may
read several layers of the trunk, as EAGLE-3 does: it then has a projection of its own for them.

Source: DeepSeek-AI 2412.19437, section 2.2; Cai et al. 2509.18362 (FastMTP).
"""

from __future__ import annotations

from headstart.architectures.block import block
from headstart.architectures.config import TrunkConfig
from headstart.architectures.heads.config import HeadsConfig
from headstart.architectures.heads.stage import Stage, block_config, joined, normed_taps, trunk_hidden, unembed
from headstart.architectures.program import Builder


def stages(config: HeadsConfig, trunk: TrunkConfig) -> tuple[Stage, ...]:
    """One stage for each module; an unrolled module has a second one that reads its own output."""
    if config.num_modules > 1:
        return tuple(_stage(config, trunk, module, reads=module, on_text=True) for module in range(config.num_modules))
    first = _stage(config, trunk, 0, reads=0, on_text=True)
    return (first,) if config.depth == 1 else (first, _stage(config, trunk, 0, reads=1, on_text=False))


def _stage(config: HeadsConfig, trunk: TrunkConfig, module: int, *, reads: int, on_text: bool) -> Stage:
    build = Builder()
    here = f"modules.{module}"
    eps = trunk.norm_eps
    embedding = build.rms_norm(build.embed("trunk.embedding", trunk.hidden_size), f"{here}.embedding_norm", eps)
    if reads == 0 and len(config.taps) > 1:
        hidden, projection = normed_taps(build, config, trunk, f"{here}.tap_norms"), f"{here}.tap_projection"
    else:
        source = trunk_hidden(build, config, trunk) if reads == 0 else build.state(trunk.hidden_size)
        hidden, projection = build.rms_norm(source, f"{here}.hidden_norm", eps), f"{here}.projection"
    x = build.linear(joined(build, config, hidden, embedding), projection, trunk.hidden_size)
    x = block(build, block_config(config, trunk), f"{here}.block", module, x)
    normed = build.rms_norm(x, f"{here}.final_norm", eps)
    logits = unembed(build, config, trunk, build.select_wanted(normed))
    kept = normed if config.recycled_stage == "post_norm" else x
    return Stage(build.finish(logits, (kept,)), reads, module + 1, on_text)
