from __future__ import annotations

import pytest

from headstart.measure.bench.server_counters import (
    ServerCounters,
    acceptance_of_counters,
    parse_counters,
    parse_totals,
    read_counters,
)

VLLM = """
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 70.0
vllm:generation_tokens_total{engine="1",model_name="m"} 30.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5",model_name="m"} 3.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 4.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 1.25
vllm:time_to_first_token_seconds_count{engine="1",model_name="m"} 1.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 49.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 40.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 8.0e+01
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 50.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 18.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 32.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
process_cpu_seconds_total 12.5
"""


def test_vllms_counters_are_added_over_engines() -> None:
    assert parse_counters(VLLM) == ServerCounters(
        tokens=100, rounds=54, drafts=40, drafted=80, accepted=50, accepted_by_depth=(32, 18), tells_drafts=True
    )
    assert parse_totals(VLLM)["vllm:time_to_first_token_seconds_sum"] == 1.25
    assert parse_totals(VLLM)["vllm:generation_tokens_total"] == 100


def test_llama_cpps_counters() -> None:
    assert parse_counters("llamacpp:tokens_predicted_total 12\nllamacpp:prompt_tokens_total 99") == ServerCounters(
        tokens=12
    )
    drafting = (
        "llamacpp:tokens_predicted_total 12\nllamacpp:spec_decode_num_draft_tokens_total 6\n"
        "llamacpp:spec_decode_num_accepted_tokens_total 4"
    )
    assert parse_counters(drafting) == ServerCounters(tokens=12, drafted=6, accepted=4, tells_drafts=True)


def test_a_vllm_without_counters_of_drafts_does_not_draft() -> None:
    counters = parse_counters("vllm:generation_tokens_total 5")
    assert counters is not None
    assert counters.tells_drafts


def test_unknown_counters_are_none() -> None:
    assert parse_counters("process_cpu_seconds_total 12.5\n<html>\nno metrics here") is None
    assert read_counters("http://127.0.0.1:1/v1") is None


def test_a_turn_is_the_difference() -> None:
    before = ServerCounters(tokens=10, rounds=6, drafts=4, drafted=8, accepted=5)
    after = parse_counters(VLLM)
    assert after is not None
    assert after.since(before) == ServerCounters(
        tokens=90, rounds=48, drafts=36, drafted=72, accepted=45, accepted_by_depth=(32, 18), tells_drafts=True
    )


def test_acceptance_by_depth_follows() -> None:
    found = parse_counters(VLLM)
    assert found is not None
    counts = acceptance_of_counters([found, found])
    assert counts is not None
    assert counts.mean_acceptance_length == pytest.approx(100 / 54)
    assert counts.conditional_acceptance == pytest.approx((32 / 40, 18 / 32))
    assert counts.acceptance_rate == pytest.approx(50 / 80)
    assert acceptance_of_counters([ServerCounters(tokens=9)]) is None


def test_guesses_behind_the_end_of_a_text_are_no_tokens_of_its_rounds() -> None:
    # three rounds of five tokens, of which the last one's second ended the text
    told = acceptance_of_counters([ServerCounters(tokens=12, rounds=3, drafts=3, drafted=12, accepted=12)])
    assert told is not None
    assert told.mean_acceptance_length == pytest.approx(12 / 3)
    untold = acceptance_of_counters([ServerCounters(tokens=10, drafts=2, drafted=8, accepted=8)])
    assert untold is not None
    assert untold.mean_acceptance_length == pytest.approx(10 / 2)
