"""`headstart check`: the certificate that nothing was changed by drafting."""

from __future__ import annotations

import json as json_module
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headstart.cli import status
from headstart.cli.bench_flags import ServerFlags
from headstart.cli.check_flags import CheckFlags, EngineCheckFlags, ServerCheckFlags
from headstart.cli.flags import ModelName
from headstart.errors import ConfigError

if TYPE_CHECKING:
    from headstart.checkpoint import Tokenizer
    from headstart.cli.opening import OpenedModel
    from headstart.measure.check import Certificate
    from headstart.measure.check.engine_check import MakeEngine
    from headstart.measure.check.findings import Finding
    from headstart.measure.check.tolerance import ActivationBits
    from headstart.measure.openai_client import OpenAIClient
    from headstart.measure.workload import Prompt

_FLOAT_KINDS = ("F32", "F16", "BF16")

_STATUS = {"exact": None, "broken": status.FAILURE, "unproven": status.UNPROVEN}

_FLAGS, _ENGINE, _SAMPLES, _SERVERS = CheckFlags(), EngineCheckFlags(), ServerCheckFlags(), ServerFlags()


def check(
    model: ModelName | None = None,
    /,
    *,
    engine: EngineCheckFlags = _ENGINE,
    servers: ServerFlags = _SERVERS,
    samples: ServerCheckFlags = _SAMPLES,
    flags: CheckFlags = _FLAGS,
    json: Annotated[bool, Parameter(help="Print nothing but one JSON document.")] = False,
) -> int | None:
    """Check that drafting changes nothing: is what is written what the model alone would write?

    A model file: this engine's tokens are compared with plain decoding of one text at a time, for every drafter, batch,
    number of threads and way of splitting and sharing prompts. With --url: a server is held to the model file, or to
    --url-plain: greedy tokens, where they part and whether that was a tie; stop strings, counts, streams; seeds; and
    the distribution of what it draws. A fault is named. Exit status 0 if all is exact, 1 if not, 3 if nothing is wrong
    but the server says that it drafted nothing.
    """
    _refuse_what_does_not_fit(model, engine, servers, samples)
    flags.require_place()
    prompts = flags.read_prompts()

    # late: they bring numpy and the native module, which --help can do without
    from headstart.cli.results import print_json

    if servers.url is None:
        assert model is not None
        certificate = _check_engine(model, engine, flags, prompts)
    else:
        certificate = _check_server(model, servers, engine, samples, flags, prompts)
    document = certificate.to_json()
    if json:
        print_json(document)
    else:
        _print_account(certificate)
    if flags.out is not None:
        flags.out.write_text(json_module.dumps(document, indent=2) + "\n", encoding="utf-8")
        if not json:
            print(f"The certificate is in {flags.out}.", file=sys.stderr)
    return _STATUS[certificate.verdict]


def _refuse_what_does_not_fit(
    model: str | None, engine: EngineCheckFlags, servers: ServerFlags, samples: ServerCheckFlags
) -> None:
    has_plain = servers.url_plain is not None or servers.plain_fields is not None
    if servers.url is None:
        samples.refuse()
        for name in ("url_plain", "plain_fields", "server_model"):
            if getattr(servers, name) is not None:
                raise ConfigError(f"--{name.replace('_', '-')} has no effect without --url. Leave it out.")
        if model is None:
            raise ConfigError("Name a model to be checked, or a server by --url.")
        return
    engine.refuse(has_model=model is not None)
    if model is None and not has_plain:
        raise ConfigError(
            f"What {servers.url} is to be held to is missing: name the model file that it serves, or a server that "
            "decodes plainly by --url-plain, or fields that switch drafting off by --plain-fields."
        )
    if (model is not None and has_plain) or (servers.url_plain is not None and servers.plain_fields is not None):
        raise ConfigError("Hold a server to one thing: a model file, --url-plain or --plain-fields.")


def _check_engine(model: str, engine: EngineCheckFlags, flags: CheckFlags, prompts: list[Prompt]) -> Certificate:
    from headstart.checkpoint import open_checkpoint
    from headstart.cli.flags import EngineFlags
    from headstart.cli.opening import draft_source, model_source, open_model
    from headstart.cli.progress import progress_bar
    from headstart.engine.loading import require_drafter
    from headstart.measure.check import check_engine

    config = engine.to_config(flags)
    checkpoint = open_checkpoint(model_source(model))
    for draft in config.drafts:
        require_drafter(checkpoint, draft_source(draft))
    ids = _encode(prompts, checkpoint.tokenizer())
    opened: list[OpenedModel] = []
    sides: list[dict[str, Any]] = []

    def open_side(draft: str, threads: int | None) -> MakeEngine:
        if opened:
            opened.clear()  # first: two may not fit into memory
        opened.append(open_model(model, EngineFlags(draft=draft, threads=threads, weights=engine.weights or "stored")))
        document = _model_document(opened[0])
        sides.append({"draft": draft, "threads": document["threads"], "heads": document["heads"]})
        return opened[0].parts.make_engine

    with progress_bar("Checking") as show:
        findings = check_engine(open_side, ids, config, show)
    about = {name: value for name, value in _model_document(opened[0]).items() if name not in sides[0]}
    # the first is the one that all are compared with
    context = {"model": about, "sides": sides[1:], "settings": config.to_json()}
    return _certificate(model, findings, context, ids)


def _check_server(
    model: str | None,
    servers: ServerFlags,
    engine: EngineCheckFlags,
    samples: ServerCheckFlags,
    flags: CheckFlags,
    prompts: list[Prompt],
) -> Certificate:
    from headstart.cli.flags import EngineFlags
    from headstart.cli.opening import open_model
    from headstart.cli.progress import progress_bar
    from headstart.measure.check import chance_texts, check_against_model, check_against_server

    assert servers.url is not None
    client = _client(servers.url, servers)
    context: dict[str, Any] = {"server": servers.url, "server_model": client.model}
    asked: list[str] | list[list[int]]
    texts = chance_texts(flags.seed)
    if model is None:
        asked = [prompt.messages[-1][1] for prompt in prompts]
        config = samples.to_config(flags)
        plain = _client(servers.url_plain or servers.url, servers)
        with progress_bar("Checking") as show:
            findings = check_against_server(
                client, plain, asked, config, show, probes=texts, plain_fields=servers.plain_extra()
            )
        context["held_to"] = {"server": plain.url, "fields": servers.plain_extra()}
    else:
        (threads,) = engine.to_config(flags).threads[:1]
        opened = open_model(model, EngineFlags(draft="none", threads=threads, weights=engine.weights or "stored"))
        asked = _encode(prompts, opened.parts.tokenizer)
        probes = [opened.parts.tokenizer.encode(text) for text in texts]
        config = samples.to_config(
            flags, num_layers=opened.parts.trunk.config.num_layers, activation_bits=_activation_bits(opened)
        )
        with progress_bar("Checking") as show:
            findings = check_against_model(
                client, opened.parts.trunk, opened.parts.tokenizer, asked, config, show, probes=probes
            )
        context["held_to"] = _model_document(opened)
    return _certificate(servers.url, findings, {**context, "settings": config.to_json()}, asked)


def _activation_bits(opened: OpenedModel) -> ActivationBits:
    """How finely engines compute with these weights: 8 bits with quantised ones, whether here or in the server."""
    has_quantised = any(
        tensor.kind not in _FLOAT_KINDS and len(tensor.shape) > 1 for tensor in opened.parts.checkpoint.tensors.values()
    )
    return 8 if has_quantised or opened.flags.weights.startswith("int8") else 16


def _encode(prompts: list[Prompt], tokenizer: Tokenizer) -> list[list[int]]:
    """The prompts in token ids, conversations by the model's own template if it has one."""
    return [
        tokenizer.encode(prompt.messages[-1][1])
        if prompt.raw or tokenizer.chat_template is None
        else tokenizer.encode_chat([{"role": role, "content": content} for role, content in prompt.messages])
        for prompt in prompts
    ]


def _client(url: str, servers: ServerFlags) -> OpenAIClient:
    from headstart.measure.openai_client import OpenAIClient

    return OpenAIClient(url, model=servers.server_model, api_key=servers.api_key)


def _certificate(
    subject: str,
    findings: tuple[Finding, ...],
    context: Mapping[str, Any],
    prompts: list[str] | list[list[int]],
) -> Certificate:
    from headstart.measure.check import Certificate, prompts_document

    return Certificate(
        subject=subject,
        findings=findings,
        context={**context, "prompts": prompts_document(prompts), "machine": {"cpus": os.cpu_count()}},
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _model_document(opened: OpenedModel) -> dict[str, Any]:
    from headstart.cli.results import machine_document

    document = machine_document(opened)
    return {name: document[name] for name in ("model", "heads", "threads", "instruction_set")} | {
        "weights": opened.flags.weights
    }


def _print_account(certificate: Certificate) -> None:
    for finding in certificate.findings:
        told = finding.untested or "; ".join(fault.kind for fault in finding.faults)
        print(f"{finding.outcome:10}  {finding.test}{': ' if told else ''}{told}")
    print(certificate.sentence)
