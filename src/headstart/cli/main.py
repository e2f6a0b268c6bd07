"""The command `headstart`: finds the verb, and turns failures into one line and an exit status."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

from headstart import __version__
from headstart.cli import status
from headstart.cli.bench import bench
from headstart.cli.chat import chat
from headstart.cli.check import check
from headstart.cli.data import data
from headstart.cli.demo import demo
from headstart.cli.doctor import doctor
from headstart.cli.generate import generate
from headstart.cli.graft import graft
from headstart.cli.help import HelpText
from headstart.cli.inspect import inspect
from headstart.cli.mistyped import refuse_mistyped_flags
from headstart.cli.plan import plan
from headstart.cli.settings import settings_sources, split_variable
from headstart.cli.terminal import printable
from headstart.cli.train import train
from headstart.errors import ConfigError, HeadstartError

# Each keeps what takes long to import inside its function.
VERBS: dict[str, Callable[..., int | None]] = {
    "generate": generate,
    "chat": chat,
    "demo": demo,
    "doctor": doctor,
    "graft": graft,
    "bench": bench,
    "check": check,
    "inspect": inspect,
    "plan": plan,
    "data": data,
    "train": train,
}


def make_app() -> App:
    """The command with all its verbs; the help of a verb is its docstring."""
    app = App(
        name="headstart",
        help="Exact multi-token decoding on the CPU: the model's own words, sooner.",
        version=__version__,
        help_format="plaintext",
        help_formatter=HelpText(),
        default_parameter=Parameter(negative=(), env_var_split=split_variable),
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    for name, verb in VERBS.items():
        app.command(verb, name=name)
    # train reads a file of its own
    app.config = (refuse_mistyped_flags, *settings_sources([verb for verb in VERBS if verb != "train"]))
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: those after the program's name; `sys.argv`'s by default.

    Returns:
        The exit status: 0, 1 for a failure, 2 for wrong usage, 130 after Ctrl-C.
    """
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an encoding may lack a character; that is no reason to stop
    try:
        result = make_app()(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()  # here, where a reader that has left can be told from a failure
        return result if isinstance(result, int) else 0
    except BrokenPipeError:
        # nobody reads any more; without this the interpreter would complain about it on its way out
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return status.BROKEN_PIPE
    except KeyboardInterrupt:
        return status.INTERRUPTED
    except UnusedCliTokensError as error:
        words = " ".join(error.unused_tokens or ())
        return _report(f"There is no place for {words!r}. Put quotation marks around several words.", status.USAGE)
    except (CycloptsError, ConfigError) as error:
        return _report(str(error), status.USAGE)
    except HeadstartError as error:
        return _report(str(error), status.FAILURE)
    except OSError as error:  # such as a full disk behind stdout
        return _report(f"{error} (the system reports it; HEADSTART_DEBUG=1 shows where it arose)", status.FAILURE)
    except Exception as error:
        return _report(
            f"{type(error).__name__}: {error} (unexpected; HEADSTART_DEBUG=1 shows where it arose)", status.FAILURE
        )


def _open_closed_streams() -> None:
    """Put nothing's device where the caller closed a standard stream (`>&-`), for which Python has `None`."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for the rest of the process


def _report(text: str, exit_status: int) -> int:
    """Say what went wrong in one line, and where if HEADSTART_DEBUG is set."""
    if os.environ.get("HEADSTART_DEBUG"):
        traceback.print_exc()
    # texts may quote model files, which may hold anything
    print(f"error: {printable(' '.join(text.split()))}", file=sys.stderr)
    return exit_status
