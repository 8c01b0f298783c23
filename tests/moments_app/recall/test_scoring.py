"""Scores of hits: similarities are compared within a kind, and facts share their scores with their source turns."""

from moments_app.recall.results import Key
from moments_app.recall.scoring import CANDIDATES, MIN_OF_KIND, SOURCE_SHARE, semantic_scores, share_with_sources


def turn(sequence: int) -> Key:
    return "turn", (1, sequence)


def fact(pk: int) -> Key:
    return "fact", (pk, 0)


def test_many_similar_facts_leave_turns_their_scores() -> None:
    turns = {turn(number): 0.5 + number / 1_000 for number in range(CANDIDATES)}
    facts = {fact(number): 0.8 + number / 1_000 for number in range(CANDIDATES)}
    scores = semantic_scores(turns | facts)
    assert scores == semantic_scores(turns) | semantic_scores(facts)
    assert scores[turn(CANDIDATES - 1)] > 3


def test_a_kind_with_few_texts_is_compared_with_all_texts() -> None:
    turns = {turn(number): 0.2 + number / 1_000 for number in range(100)}
    facts = {fact(number): 0.9 for number in range(MIN_OF_KIND - 1)}
    scores = semantic_scores(turns | facts)
    assert scores[fact(1)] > 2
    one = semantic_scores(turns | {fact(1): 0.9})
    assert one[fact(1)] == max(one.values()) > 5


def test_turns_without_a_vector_get_the_mean_score() -> None:
    turns = {turn(number): 0.2 + number / 1_000 for number in range(101)}
    scores = semantic_scores(turns, unembedded=[turn(500)])
    assert abs(scores[turn(500)] - sum(scores[key] for key in turns) / 101) < 1e-9
    facts = {fact(number): 0.2 + number / 1_000 for number in range(101)}
    assert semantic_scores(facts, unembedded=[turn(500)])[turn(500)] > 0
    assert semantic_scores({}, unembedded=[turn(500)]) == {}


def test_equal_similarities_score_zero() -> None:
    assert set(semantic_scores({turn(number): 0.5 for number in range(40)}).values()) == {0.0}


def test_a_turn_and_its_best_fact_share_their_scores() -> None:
    turns, facts = {1: {1: 3.0, 2: 1.0}}, {fact(1): 2.0, fact(2): 5.0, fact(3): 7.0}
    share_with_sources(turns, facts, {fact(1): [(1, 1), (1, 2)], fact(2): [(1, 2)]})
    assert turns == {1: {1: 3.0 + SOURCE_SHARE * 2.0, 2: 1.0 + SOURCE_SHARE * 5.0}}
    assert facts == {fact(1): 2.0 + SOURCE_SHARE * 3.0, fact(2): 5.0 + SOURCE_SHARE * 1.0, fact(3): 7.0}
