"""The turns of a chat: messages, answers, and the commands between them."""

from __future__ import annotations

import difflib
import sys

from headstart.cli.lines import is_interactive
from headstart.cli.opening import OpenedModel
from headstart.cli.results import completion_document, print_json, print_summary
from headstart.cli.writing import write_answer
from headstart.errors import HeadstartError
from headstart.records import Completion, SamplingParams

COMMANDS = ("/quit", "/reset", "/stats")


class Conversation:
    """What was said so far, and who answers.

    The engine keeps the cache of earlier turns, so each turn reads only what is new. A model without a chat template,
    such as one that was trained from nothing, goes on with the lines themselves.

    Args:
        opened: the model.
        params: for each answer.
        system: the instruction before all messages, if any.
        json: report one document a turn instead of writing the text.
    """

    def __init__(self, opened: OpenedModel, params: SamplingParams, *, system: str | None, json: bool) -> None:
        """Begin with nothing said."""
        self._opened = opened
        self._engine = opened.make_engine()
        self._params = params
        self._json = json
        self._opening = [] if system is None else [{"role": "system", "content": system}]
        self._messages = list(self._opening)
        self._has_template = opened.parts.tokenizer.chat_template is not None
        if not self._has_template:
            self._tell("This model has no chat template: it takes your lines for the beginning of a text and goes on.")

    def take(self, line: str) -> bool:
        """Answer a message, or obey a command.

        Args:
            line: what the user said; one that begins with "/" is a command.

        Returns:
            Whether the conversation goes on.

        Raises:
            HeadstartError: the answer failed, and no person is there to see it and go on.
        """
        # where lines are the text itself, blanks at their beginnings are a part of it
        message = line.strip() if self._has_template else line
        if message == "/quit":
            return False
        if message == "/reset":
            self._messages = list(self._opening)
        elif message == "/stats":
            self._tell(self._statistics())
        elif message.startswith("/"):
            command, *words = message.split()
            if command in COMMANDS:
                self._tell(f"{command} stands alone: leave out {' '.join(words)!r}.")
            else:
                close = difflib.get_close_matches(command, COMMANDS, n=1) or [", ".join(COMMANDS)]
                self._tell(f"There is no command {command}. Did you mean {close[0]}?")
        elif message.strip():
            self._answer(message)
        return True

    def _answer(self, message: str) -> None:
        self._messages.append({"role": "user", "content": message})
        completion: Completion | None = None
        try:
            completion = self._write()
        except HeadstartError as error:
            if not is_interactive():
                raise
            self._tell(f"error: {error}")
        if completion is None or not completion.text:
            # nothing came of it; a question without an answer is no turn, and many templates refuse it
            self._messages.pop()
        else:
            self._messages.append({"role": "assistant", "content": completion.text})

    def _write(self) -> Completion:
        """Write the answer to the last message; Ctrl-C leaves a part of it."""
        engine = self._engine
        completion = write_answer(engine, self._prompt(), self._params, stream=None if self._json else sys.stdout)
        if self._json:
            print_json(completion_document(completion, self._params, self._opened))
        elif is_interactive():
            print_summary(completion, self._params)
        return completion

    def _prompt(self) -> list[int]:
        if self._has_template:
            return self._engine.encode_chat(self._messages)
        return self._opened.parts.tokenizer.encode("\n".join(message["content"] for message in self._messages))

    def _statistics(self) -> str:
        statistics = self._engine.statistics
        acceptance = statistics.acceptance
        return (
            f"{acceptance.tokens} tokens in {acceptance.rounds} rounds, {acceptance.accepted} of {acceptance.drafted} "
            f"drafts kept; {statistics.shared_tokens} prompt tokens were still in the cache; "
            f"{statistics.trunk_s:.1f} s in the model, {statistics.step_s - statistics.trunk_s:.1f} s around it"
        )

    def _tell(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
