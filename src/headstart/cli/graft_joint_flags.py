"""The flags of `headstart graft --joint`. Their defaults are the library's own."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headstart.errors import ConfigError

if TYPE_CHECKING:
    from headstart.train.graft_config import GraftConfig
    from headstart.train.joint_config import JointConfig


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class JointFlags:
    """Whether the model is trained too, and how far it may go."""

    joint: Annotated[
        bool,
        Parameter(
            help="Train the model too, after its heads alone (Medusa-2). The result is another model, in a folder "
            "of its own, and writes other words."
        ),
    ] = False
    trunk_learning_rate: Annotated[
        float | None, Parameter(help="Of the model at its highest; --joint only. By default 0.00001.")
    ] = None
    heads_weight: Annotated[
        float | None,
        Parameter(help="Of the heads' loss beside the model's own; --joint only. By default 0.2."),
    ] = None
    label_weight: Annotated[
        float | None,
        Parameter(
            help="Of the text's own tokens in the model's own loss, beside staying as it was; --joint only. By "
            "default 0."
        ),
    ] = None
    max_drift: Annotated[
        float | None,
        Parameter(
            help="Nats a token that the model may go from what it was, on held-out text, before the run stops; --joint "
            "only. By default 0.05."
        ),
    ] = None

    def to_config(self, graft: GraftConfig) -> JointConfig | None:
        """The same as training takes it; `None` for a graft that leaves the model as it is.

        Raises:
            ConfigError: a value is out of its range or would have no effect.
        """
        # late: it brings numpy, which --help can do without
        from headstart.train.joint_config import JointConfig

        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "joint"}
        given = {name: value for name, value in given.items() if value is not None}
        if self.joint:
            return JointConfig(graft=graft, **given)
        if given:
            flag = "--" + next(iter(given)).replace("_", "-")
            raise ConfigError(f"{flag} has no effect without --joint, as the model stays as it is. Leave it out.")
        return None
