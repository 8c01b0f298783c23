"""How much of what answers a question is found: `python -m benchmarks.recall_quality FOLDER`.

Puts every conversation of the folder into a site of its own, asks the site each question and prints which share of the
turns that answer it come back. With an embeddings provider in the environment, also by meaning and by both.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from benchmarks.clients import Http, timed
from benchmarks.conversations import BadConversations, Conversation, Question, read_folder
from benchmarks.figures import describe_machine, print_markdown
from benchmarks.seed import settle
from benchmarks.site import Site

MOST, FEW = 10, 5  # results that recall is told of
BATCH = 100  # turns a request
TITLE = "Quality of recall"
NOTE = (
    f"Recall: the share of a question's evidence among the best {MOST} turns (or {FEW}), averaged over questions; by "
    f"conversation and category it is recall@{MOST}. Milliseconds: over HTTP, one client, with the query's vector "
    "known from before, so without the endpoint's time."
)

Place = tuple[str, int]  # of a turn: its session's id and its sequence


@dataclass(frozen=True)
class Stored:
    """A conversation in the site, and where each of its turns is."""

    conversation: Conversation
    places: dict[str, Place]


@dataclass(frozen=True)
class Score:
    """What came back for one question.

    Args:
        groups: what the question belongs to: its conversation, its category.
        of_most, of_few: share of the evidence among the results, and among the first few of them.
        seconds: that the same took when asked again, the query's vector being known.
    """

    groups: tuple[str, str]
    of_most: float
    of_few: float
    seconds: float


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("Name one folder: python -m benchmarks.recall_quality FOLDER.", file=sys.stderr)
        return 2
    try:
        conversations = read_folder(Path(arguments[0]))
    except BadConversations as error:
        print(error, file=sys.stderr)
        return 2
    with Site() as site:
        print(describe_machine(site.conninfo))
        _print_scores(_measured(site, conversations))
    return 0


def _measured(site: Site, conversations: Sequence[Conversation]) -> dict[str, list[Score]]:
    """The scores of all questions, by mode."""
    http = Http(site.port, site.key)
    stored = [Stored(conversation, _put_in(http, conversation)) for conversation in conversations]
    _count_words()
    modes = ("text", "semantic", "hybrid") if _embed_all() else ("text",)
    settle()
    http = Http(site.port, site.key)  # the site closes a connection that has been idle for long
    return {
        mode: [_ask(http, one, question, mode) for one in stored for question in one.conversation.scored]
        for mode in modes
    }


def _put_in(http: Http, conversation: Conversation) -> dict[str, Place]:
    """Appends a conversation, of a person of its own, and returns where each turn is."""
    places: dict[str, Place] = {}
    for session in conversation.sessions:
        session_id = f"session-{session.n}"
        messages = conversation.messages(session)
        for start in range(0, len(messages), BATCH):
            body = {"user_id": conversation.id, "messages": messages[start : start + BATCH]}
            answer = json.loads(http.request("POST", f"/api/v1/sessions/{session_id}/messages", body))
            places |= {message["external_id"]: (session_id, message["sequence"]) for message in answer["messages"]}
    return places


def _count_words() -> None:
    """Asks for the counts as the schedule does, and does the work of the worker that isn't there."""
    from django.core.management import call_command

    from moments_app.models import Job
    from moments_app.processes import count_words, run

    call_command("count_words", stdout=sys.stderr)
    for job in Job.objects.filter(process=count_words.NAME):
        run.run_job(job.job_id)
        job.refresh_from_db()
        if job.status != Job.Status.COMPLETED:
            raise RuntimeError(f"The words were not counted: {job.error}")


def _embed_all() -> bool:
    """Gives every turn its vector; False when no provider is set that does."""
    from django.conf import settings
    from django.core.management import call_command

    if not settings.EMBEDDING.is_on or not settings.EMBEDDING.turns:
        return False
    call_command("embed", stdout=sys.stderr)
    return True


def _ask(http: Http, stored: Stored, question: Question, mode: str) -> Score:
    """Searches for what answers a question, twice: the first time tells what is found, the second how long it takes.

    Raises:
        RuntimeError: the site searched in another mode.
    """
    user_id = stored.conversation.id
    body = {"user_id": user_id, "query": question.q, "kinds": ["turn"], "match_count": MOST, "mode": mode}

    def search() -> bytes:
        return http.request("POST", "/api/v1/memory/search", body)

    answer = json.loads(search())
    if answer["degraded"] or answer["mode"] != mode:
        raise RuntimeError(f"Asked in mode {mode}, the site answered in mode {answer['mode']}: is the provider well?")
    found: list[Place] = [(result["session_id"], result["sequence"]) for result in answer["results"]]
    evidence = {stored.places[turn] for turn in question.evidence}
    return Score(
        groups=(f"conversation {user_id}", f"category {question.category}"),
        of_most=len(evidence.intersection(found)) / len(evidence),
        of_few=len(evidence.intersection(found[:FEW])) / len(evidence),
        seconds=timed(search),
    )


def _print_scores(scores: dict[str, list[Score]]) -> None:
    all_groups = [score.groups for score in next(iter(scores.values()))]
    conversations, categories = (dict.fromkeys(names) for names in zip(*all_groups, strict=True))
    groups = [*conversations, *sorted(categories)]
    columns = ["mode", f"recall@{MOST}", f"recall@{FEW}", *groups, "questions", "p50 ms"]
    print_markdown(TITLE, columns, [_row(mode, of_mode, groups) for mode, of_mode in scores.items()], NOTE)


def _row(mode: str, scores: Sequence[Score], groups: Sequence[str]) -> list[str]:
    shares = [fmean(score.of_most for score in scores), fmean(score.of_few for score in scores)]
    shares += [fmean(score.of_most for score in scores if group in score.groups) for group in groups]
    p50_ms = median(score.seconds for score in scores) * 1000
    return [mode, *(f"{share:.3f}" for share in shares), str(len(scores)), f"{p50_ms:.2f}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
