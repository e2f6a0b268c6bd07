"""How figures are written on the command line of `headstart plan`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headstart.cli.settings import SettingsFile
from headstart.errors import ConfigError

if TYPE_CHECKING:
    from headstart.decoding.cost_curve import CostCurve
    from headstart.measure.plan import Experts, Roofline

MAX_NODES = 32


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MachineFlags:
    """A model on a machine, from which the cost of further rows is computed."""

    parameters: Annotated[
        float | None, Parameter(help="Billions of parameters that a token uses; with --bandwidth and --tflops.")
    ] = None
    bits: Annotated[float, Parameter(help="Bits of a weight, scales included.")] = 16.0
    bandwidth: Annotated[float | None, Parameter(help="Of the memory, in GB/s.")] = None
    tflops: Annotated[float | None, Parameter(help="What the machine computes, in 10^12 operations a second.")] = None
    cache: Annotated[float, Parameter(help="Megabytes of keys and values that a pass reads for each sequence.")] = 0.0
    experts: Annotated[
        str | None,
        Parameter(help="Of a mixture: USED/ALL/SHARE, such as 8/256/0.5 if half of what a token reads is experts."),
    ] = None

    def to_roofline(self) -> Roofline | None:
        """The same as the plan takes it; `None` if no machine is given.

        Raises:
            ConfigError: a part of it is missing, has no effect, or is out of its range.
        """
        needed = {"--parameters": self.parameters, "--bandwidth": self.bandwidth, "--tflops": self.tflops}
        missing = [name for name, value in needed.items() if value is None]
        if len(missing) == len(needed):
            self._refuse_without_effect()
            return None
        if self.parameters is None or self.bandwidth is None or self.tflops is None:
            raise ConfigError(f"A machine is described by {', '.join(needed)} together: give {', '.join(missing)} too.")
        from headstart.measure.plan import Roofline

        return Roofline(
            parameters=1e9 * self.parameters,
            bits=self.bits,
            bandwidth_bytes_per_s=1e9 * self.bandwidth,
            flops_per_s=1e12 * self.tflops,
            cache_bytes=1e6 * self.cache,
            experts=None if self.experts is None else _experts(self.experts),
        )

    def _refuse_without_effect(self) -> None:
        usual = MachineFlags()
        for name in ("bits", "cache", "experts"):
            if getattr(self, name) != getattr(usual, name):
                raise ConfigError(
                    f"--{name} has no effect without --parameters, --bandwidth and --tflops. Give them too."
                )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PlanFlags:
    """What else is known, and what is asked."""

    cost_curve: Annotated[
        str | None,
        Parameter(
            help="Time of a pass by rows, ROWS:TIME with commas between, such as 1:1,8:1.5; any unit. Without it and "
            "without a machine, checking is taken to cost nothing, which flatters."
        ),
    ] = None
    concurrency: Annotated[int, Parameter(help="Sequences that share a pass.")] = 1
    max_depth: Annotated[
        int | None,
        Parameter(help="Depth at most; by default as many as --acceptance has. The last acceptance holds for more."),
    ] = None
    max_nodes: Annotated[
        int | None,
        Parameter(help=f"Guesses of a tree at most, if --acceptance has second guesses; {MAX_NODES} by default."),
    ] = None
    entropy: Annotated[
        str | None,
        Parameter(
            help="MEAN,SECOND of the model's distributions, in nats: the means of -sum p log p and of sum p log^2 p. "
            "Tells how many guesses a round could keep at best."
        ),
    ] = None
    plot: Annotated[Path | None, Parameter(help="Draw it, for instance as plan.svg. Needs matplotlib.")] = None
    config: SettingsFile = None


def read_acceptance(text: str) -> tuple[tuple[float, ...], ...]:
    """Acceptance by depth and rank.

    Example:
        >>> read_acceptance("0.9/0.05,0.8")
        ((0.9, 0.05), (0.8,))

    Raises:
        ConfigError: something is no number.
    """
    try:
        return tuple(tuple(float(share) for share in depth.split("/")) for depth in text.split(","))
    except ValueError:
        raise ConfigError(
            f"--acceptance {text!r}: give shares with commas between depths, such as 0.9,0.8, and those of second "
            "guesses after a slash: 0.9/0.05,0.8/0.1."
        ) from None


def read_cost_curve(text: str) -> CostCurve:
    """A cost curve.

    Raises:
        ConfigError: it is no list of rows and times.
    """
    from headstart.decoding.cost_curve import CostCurve

    points: dict[int, float] = {}
    try:
        for point in text.split(","):
            rows, _, time = point.partition(":")
            points[int(rows)] = float(time)
    except ValueError:
        raise ConfigError(f"--cost-curve {text!r}: give ROWS:TIME with commas between, such as 1:1,8:1.5.") from None
    return CostCurve(points)


def read_entropy(text: str) -> tuple[float, float]:
    """Mean entropy and second log-moment.

    Raises:
        ConfigError: these are not two numbers.
    """
    try:
        mean, second = (float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--entropy {text!r}: give two numbers with a comma between, such as 1.1,4.5.") from None
    return mean, second


def _experts(text: str) -> Experts:
    from headstart.measure.plan import Experts

    try:
        used, num_experts, share = text.split("/")
        return Experts(used=int(used), num_experts=int(num_experts), share=float(share))
    except ValueError:
        raise ConfigError(f"--experts {text!r}: give USED/ALL/SHARE, such as 8/256/0.5.") from None
