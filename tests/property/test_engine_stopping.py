"""Where a text ends does not depend on how its tokens were cut into rounds."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.stopping import StopRules
from headstart.records import SamplingParams
from headstart.testing.byte_tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer("abcé€".encode())
TOKENS = st.lists(st.integers(0, TOKENIZER.vocab_size - 1), max_size=24)
STOPS = st.lists(st.text("abcé", min_size=1, max_size=4), max_size=3)


def run(tokens, cuts, **params) -> tuple[int, str, str | None, list[str]]:
    rules = StopRules(SamplingParams(**params), TOKENIZER.end_ids, TOKENIZER.stream(), 1000)
    taken, texts = 0, []
    borders = sorted({0, len(tokens), *(cut for cut in cuts if cut < len(tokens))})
    for start, end in pairwise(borders):
        ending = rules.accept(tokens[start:end])
        taken += ending.num_tokens
        texts.append(ending.text)
        if ending.reason is not None:
            return taken, "".join(texts), ending.reason, texts
    return taken, "".join(texts), None, texts


@given(TOKENS, st.lists(st.integers(0, 24)), STOPS, st.integers(1, 30), st.booleans())
def test_cuts_do_not_matter(tokens, cuts, stop, max_tokens, ignore_eos):
    params = {"stop": tuple(stop), "max_tokens": max_tokens, "ignore_eos": ignore_eos}
    singly = run(tokens, range(len(tokens)), **params)
    assert run(tokens, cuts, **params)[:3] == singly[:3]


@given(TOKENS, STOPS)
def test_text_is_what_precedes_the_first_stop_string(tokens, stop):
    """Against a search in the whole text, for a text that nothing else ends."""
    tokens = [token for token in tokens if token not in TOKENIZER.end_ids]
    if not tokens:
        return
    whole = TOKENIZER.decode(tokens)
    _, text, reason, texts = run(tokens, range(len(tokens)), stop=tuple(stop), max_tokens=len(tokens))
    ends = [(whole.find(string) + len(string), whole.find(string)) for string in stop if string in whole]
    if ends:
        assert (text, reason) == (whole[: min(ends)[1]], "stop")
    else:
        assert (text, reason) == (whole, "length")
    assert all(string not in "".join(texts) for string in stop)
