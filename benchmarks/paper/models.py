"""Jobs that train: models with their heads, and heads grafted on finished models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headstart.checkpoint.safetensors import HEADS_NAME
from headstart.train.corpus.vocabulary import read_tokenizer
from headstart.train.graft_config import GraftConfig
from headstart.train.pretrain.config import DataConfig, Precision, PretrainConfig, TrainConfig
from headstart.train.pretrain.model_config import ModelConfig, PretrainHeads, TrainedHeads
from headstart.train.pretrain.scale import scale_of
from headstart.train.prompts import Prompt, PromptList
from paper.budgets import Budget, Sizes
from paper.claim import Figures, Job
from paper.corpora import contents_of

if TYPE_CHECKING:
    from headstart.train.corpus import Corpus
    from headstart.train.graft import GraftResult
    from headstart.train.pretrain.run import PretrainResult
    from paper.workspace import Workspace

# of products, as models are mostly trained; where a processor has it, a step takes two thirds of the time
_PRECISION: Precision = "bfloat16"

# of a run: how often it is judged by held-out windows
_VALIDATIONS = 8

# of the text that heads are grafted with
_GRAFT_EPOCHS = 4
_GRAFT_PROMPTS, _GRAFT_PROMPT_BYTES = 512, 24


def pretraining(
    sizes: Sizes,
    heads: PretrainHeads,
    seed: int,
    *,
    steps: int = 0,
    num_layers: int = 0,
) -> PretrainConfig:
    """The settings of a training, but for the text.

    Args:
        sizes: of the model and its training.
        heads: beside the trunk.
        seed: of everything random.
        steps, num_layers: in place of those of `sizes`, if they are given.
    """
    steps = steps or sizes.steps
    return PretrainConfig(
        model=ModelConfig(
            hidden_size=sizes.hidden_size,
            num_layers=num_layers or sizes.num_layers,
            num_heads=sizes.num_heads,
        ),
        heads=heads,
        # stands for a corpus, whose place only a workspace knows; tokens are bytes in all of them
        data=DataConfig(sources=("stdlib",), tokenizer="bytes", window=sizes.window, validation_windows=64),
        train=TrainConfig(
            steps=steps,
            batch_windows=sizes.batch_windows,
            learning_rate=sizes.learning_rate,
            precision=_PRECISION,
            validate_every=max(1, steps // _VALIDATIONS),
            measure_every=steps,
            device="cpu",
            seed=seed,
        ),
    )


def steps_of_equal_compute(config: PretrainConfig, other: PretrainConfig) -> int:
    """Steps of one training that take as many operations as all steps of another."""
    one, whole = (scale_of(each) for each in (config, other))
    operations = whole.flops_per_token * whole.tokens_per_step * whole.num_steps
    return max(1, round(operations / (one.flops_per_token * one.tokens_per_step)))


def model_job(budget: Budget, name: str, corpus: str, config: PretrainConfig) -> Job:
    """Train a model; it then lies in the workspace under the job's name.

    Args:
        budget: says how much text there is.
        name: of the job.
        corpus: one of `paper.corpora.CORPORA`.
        config: as `pretraining` gives it.
    """
    return Job(
        name=name,
        settings=config.settings() | {"data.sources": contents_of(corpus, budget)},
        run=lambda workspace: _train(workspace, name, corpus, config),
        estimate=lambda stopwatch: config.train.steps * stopwatch.step_s(corpus, config),
    )


def graft_job(name: str, model: Job, corpus: str, config: GraftConfig, sizes: Sizes) -> Job:
    """Graft heads on a model of another job; they then lie in the workspace under this one's name.

    The model writes a quarter of the tokens that it was trained on, going on from text of the corpus, and its heads see
    them four times: as many tokens go through them as through heads that are trained with a model.

    Args:
        name: of the job.
        model: that trains it.
        corpus: that it was trained on.
        config: as `grafting` gives it.
        sizes: of the model.
    """
    like = pretraining(sizes, PretrainHeads(n=config.depth + 1), config.seed)
    return Job(
        name=name,
        settings=config.settings() | {"model": model.name, "corpus": corpus},
        builds_on=(model,),
        run=lambda workspace: _graft(workspace, name, model.name, corpus, config),
        # a trunk that is only read takes less, the writing of the text more
        estimate=lambda stopwatch: sizes.steps * stopwatch.step_s(corpus, like),
    )


def grafting(sizes: Sizes, kind: TrainedHeads, depth: int, seed: int) -> GraftConfig:
    """The settings of a graft at the budget of a training.

    Args:
        sizes: of the model.
        kind: "parallel", which then look as heads do that are trained with a model, or "sequential".
        depth: of the heads.
        seed: of everything random.
    """
    tokens = sizes.steps * sizes.batch_windows * sizes.window
    return GraftConfig(
        kind=kind,
        depth=depth,
        taps=(sizes.num_layers - 1,) if kind == "parallel" else None,
        text_tokens=tokens // _GRAFT_EPOCHS,
        epochs=float(_GRAFT_EPOCHS),
        window=sizes.window,
        batch_windows=sizes.batch_windows,
        learning_rate=sizes.learning_rate,
        checkpoints=2,
        seed=seed,
    )


def _train(workspace: Workspace, name: str, corpus: str, config: PretrainConfig) -> Figures:
    from headstart.train.pretrain.run import pretrain

    workspace.corpus(corpus)
    placed = placed_in(workspace, corpus, config)
    result = pretrain(placed, workspace.model_folder(name), show=workspace.show)
    assert result is not None, "nothing asks it to stop"
    return _figures_of_model(result) | {"flops_per_token": scale_of(placed).flops_per_token}


def placed_in(workspace: Workspace, corpus: str, config: PretrainConfig) -> PretrainConfig:
    """Settings with a workspace's text and threads."""
    place = str(workspace.corpus_folder(corpus))
    return replace(
        config,
        data=replace(config.data, path=place, sources=(), tokenizer=""),
        train=replace(config.train, threads=workspace.threads),
    )


def _figures_of_model(result: PretrainResult) -> Figures:
    return {
        "parameters": result.num_parameters,
        "steps": result.num_steps,
        "skipped_steps": result.num_skipped,
        "tokens": result.num_tokens,
        "bits_per_byte": result.bits_per_byte,
        "losses": list(result.losses),
        "correct": list(result.correct),
        "training_s": result.spent_s,
    }


def _graft(workspace: Workspace, name: str, model: str, corpus: str, config: GraftConfig) -> Figures:
    from headstart.train.graft import graft

    folder = workspace.model_folder(name)
    prompts = _beginnings(workspace.corpus(corpus))
    config = replace(config, threads=workspace.threads)
    result = graft(workspace.model_folder(model), folder, config, prompts, show=workspace.show)
    assert result is not None, "nothing asks it to stop"
    return _figures_of_graft(result)


def _figures_of_graft(result: GraftResult) -> Figures:
    return {
        "steps": result.num_steps,
        "best_step": result.step,
        "text_tokens": result.text_tokens,
        "text_distinct_8gram_share": result.distinct_8gram_share,
        "training_s": result.spent_s,
    }


def _beginnings(corpus: Corpus) -> PromptList:
    """Openings that the model goes on from: some letters out of the middle of what it was trained on, each once."""
    tokenizer = read_tokenizer(corpus.tokenizer_folder)
    found: dict[str, Prompt] = {}
    for number in range(min(corpus.train.num_documents, _GRAFT_PROMPTS)):
        document = corpus.train.document(number)
        begin = len(document) // 2
        text = tokenizer.decode(document[begin : begin + _GRAFT_PROMPT_BYTES].tolist())
        if text.strip():
            found[text] = Prompt(turns=(text,), raw=True)
    return PromptList(tuple(found.values()))


def heads_file(workspace: Workspace, name: str) -> Path:
    """The heads that a job has left."""
    return workspace.model_folder(name) / HEADS_NAME
