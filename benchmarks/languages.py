"""Benchmark of search by words in each language: `python -m benchmarks.languages [--missed]`.

For each language in `samples/languages`, one person makes twenty statements with small talk between them. Questions
about each use other forms of its words. Another person makes all statements in all languages. The benchmark prints the
share of questions where a search by words alone finds the statement among the first few turns. With `--missed`, it also
lists the other questions.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from pydantic import BaseModel

from benchmarks.clients import Http
from benchmarks.figures import describe_machine, print_markdown
from benchmarks.seed import settle
from benchmarks.site import Site
from benchmarks.stored import do_due_jobs, let_a_minute_pass, put_in

FOLDER = Path(__file__).parent / "samples" / "languages"
FEW = 3  # results that should contain the statement
POLYGLOT = "all"  # the person who speaks all languages
TITLE = "Search by words in each language"
NOTE = (
    f"Recall@{FEW}: the share of questions for which text search finds the statement among the first {FEW} turns. "
    "Alone: a person who speaks only that language. Among all: a person who said everything in all languages."
)


class Question(BaseModel):
    """A question, and the number of the statement that answers it."""

    q: str
    statement: int


class Language(BaseModel):
    """The statements, questions and small talk of one language."""

    language: str
    statements: list[str]
    questions: list[Question]
    small_talk: list[str]

    def turns(self) -> list[tuple[str, str]]:
        """Return the id and text of each turn. Small talk follows every second statement."""
        turns = []
        for n, statement in enumerate(self.statements):
            turns.append((self.turn_id(n), statement))
            if n % 2:
                turns.append((f"{self.language}-talk-{n}", self.small_talk[n // 2]))
        return turns

    def turn_id(self, statement: int) -> str:
        return f"{self.language}-{statement}"


@dataclass(frozen=True)
class QuestionResult:
    """A question, and whether its statement was found for that language's person and for the polyglot."""

    language: str
    question: str
    alone: bool
    among_all: bool


def main(arguments: Sequence[str]) -> int:
    if set(arguments) - {"--missed"}:
        print("There is one option: python -m benchmarks.languages [--missed].", file=sys.stderr)
        return 2
    languages = read_languages()
    with Site() as site:
        print(describe_machine(site.conninfo))
        found = _measured(site, languages)
    _print_table(found)
    if arguments:
        _print_missed(found)
    return 0


def read_languages() -> list[Language]:
    """Return all languages in the order of their file names."""
    return [Language.model_validate_json(path.read_bytes()) for path in sorted(FOLDER.glob("*.json"))]


def _measured(site: Site, languages: Sequence[Language]) -> list[QuestionResult]:
    http = Http(site.port, site.key)
    places: dict[tuple[str, str], tuple[str, int]] = {}
    for language in languages:
        messages = [{"role": "user", "content": text, "external_id": name} for name, text in language.turns()]
        for user_id in (language.language, POLYGLOT):
            put = put_in(http, user_id, f"chat-{language.language}", messages)
            places |= {(user_id, name): place for name, place in put.items()}
    let_a_minute_pass(do_due_jobs)
    settle()
    http = Http(site.port, site.key)

    def is_found(user_id: str, language: Language, question: Question) -> bool:
        body = {"user_id": user_id, "query": question.q, "kinds": ["turn"], "match_count": FEW, "mode": "text"}
        answer = json.loads(http.request("POST", "/api/v1/memory/search", body))
        wanted = places[user_id, language.turn_id(question.statement)]
        return wanted in [(result["session_id"], result["sequence"]) for result in answer["results"]]

    return [
        QuestionResult(
            one.language, question.q, is_found(one.language, one, question), is_found(POLYGLOT, one, question)
        )
        for one in languages
        for question in one.questions
    ]


def _print_table(found: Sequence[QuestionResult]) -> None:
    columns = ["language", f"recall@{FEW} alone", f"recall@{FEW} among all", "questions"]
    names = list(dict.fromkeys(one.language for one in found))
    rows = [_row(name, [one for one in found if one.language == name]) for name in names]
    print_markdown(TITLE, columns, [*rows, _row("mean", found)], NOTE)


def _row(name: str, found: Sequence[QuestionResult]) -> list[str]:
    shares = (fmean(one.alone for one in found), fmean(one.among_all for one in found))
    return [name, *(f"{share:.2f}" for share in shares), str(len(found))]


def _print_missed(found: Sequence[QuestionResult]) -> None:
    print("\nNot found by a person of that language:\n")
    for one in found:
        if not one.alone:
            print(f"- {one.language}: {one.question}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
