"""Rankings of turns by the recall of this process, and their scores."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from benchmarks.conversations import Question
from benchmarks.measures import content_words, fill_budget, share, stands_in
from benchmarks.stored import StoredConversation

BUDGETS = (500, 1_000, 2_000, 3_000)  # tokens of a context
COUNTS = (5, 10)  # results of a search
RANKED = 150  # turns that fill the largest budget
MODES = {"words": "text", "vectors": "semantic", "default": "hybrid"}


@dataclass(frozen=True)
class Score:
    """The shares of a question's evidence: in the text of each budget, and among the first results of each count."""

    in_budget: dict[int, float]
    among: dict[int, float]

    @classmethod
    def mean(cls, scores: Sequence["Score"]) -> "Score":
        return cls(
            {budget: fmean(score.in_budget[budget] for score in scores) for budget in BUDGETS},
            {count: fmean(score.among[count] for score in scores) for count in COUNTS},
        )

    @property
    def cells(self) -> list[str]:
        """The shares as cells of a table."""
        return [f"{part:.3f}" for part in (*self.in_budget.values(), *self.among.values())]


def rankings(stored: StoredConversation, question: Question) -> Iterator[tuple[str, list[str]]]:
    """Yield each ranking's name with the ids of the turns that it finds, best first."""
    from moments_app.recall.query_vector import with_vector
    from moments_app.recall.request import RecallRequest
    from moments_app.recall.search import recall
    from sessions_app.models import UserProfile

    user = UserProfile.objects.get(user_id=stored.conversation.id)
    asked = with_vector(RecallRequest(question.q, ["turn"]))
    for name, mode in MODES.items():
        if asked.vector is None and mode != "text":
            continue
        found = recall(user, "", replace(asked, mode=mode), most=RANKED)
        places = [(result.session_id, result.sequence) for result in found]
        yield name, [stored.turns[place] for place in places if place in stored.turns]


def score_turns(stored: StoredConversation, question: Question, ranked: Sequence[str]) -> Score:
    """Score turns that fill each budget by rank, with date and speaker and nothing else."""
    from sessions_app.tokens import estimate_tokens

    lines = [(stored.lines[turn], estimate_tokens(stored.lines[turn])) for turn in ranked]
    texts = {budget: fill_budget(lines, budget)[0] for budget in BUDGETS}
    return Score(
        {budget: _share_in(stored, question, text) for budget, text in texts.items()},
        {count: _share_among(question, ranked[:count]) for count in COUNTS},
    )


def _share_in(stored: StoredConversation, question: Question, text: str) -> float:
    have = content_words(text)
    evidence = set(question.evidence)
    return share([turn for turn in evidence if stands_in(stored.words[turn], have)], evidence)


def _share_among(question: Question, turns: Iterable[str]) -> float:
    evidence = set(question.evidence)
    return share(evidence.intersection(turns), evidence)
