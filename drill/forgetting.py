"""Count texts that return after retractions and corrections: `python -m drill.forgetting`.

Each planted turn has a unique number. Answers repeat half of them, some in the same session, some in a session whose
context contained the turn. Then the drill retracts the turns, and searches for the numbers. It also corrects facts of
one to four sentences that exist in two streams.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.core.management.base import BaseCommand, CommandError, CommandParser

from drill.poison.course import Watch
from drill.poison.site import AttackedSite
from drill.provider import Provider
from drill.site import Site, SiteNotReady
from drill.stoppable import interrupt_on_sigterm

OWNERS = ("landlord", "plumber", "florist", "dentist", "tailor", "baker", "gardener", "butcher", "cobbler", "painter")
WORKERS = 4  # people to process in parallel
VARIABLES = {"ENGINE__PROVIDER": "extractive", "EMBEDDING__PROVIDER": "none", "API_RATE": "1000000"}
SENTENCES = (
    "Marla lives in a village near {}.",
    "She moved there in the spring of {}.",
    "She works as a nurse at the clinic of {}.",
    "Her brother keeps bees close to {}.",
)

Say = Callable[[str], object]


@dataclass(frozen=True)
class PlantedTurn:
    """A turn with a number.

    Args:
        person, session: Where the turn is.
        who: The number's owner in the text.
        number: A number that only this turn contains.
        repeated: Whether no answer repeats it, one in the same session, or one in another session.
    """

    person: str
    session: str
    who: str
    number: str
    repeated: str

    @property
    def text(self) -> str:
        return f"Write down that the account of my {self.who} is {self.number}."

    @property
    def question(self) -> str:
        return f"What is the account of my {self.who}?"

    @property
    def answer(self) -> str:
        return f"The account of your {self.who} is {self.number}."


class Course:
    """An installation, used over REST."""

    def __init__(self, site: Site) -> None:
        self._site, self._whole = site, AttackedSite(site, Watch([]))

    def rest(self) -> None:
        """Settle all sessions, and wait for all jobs."""
        self._whole.have_quiet()
        self._whole.rest()

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """Make a request about a person, and return the response.

        Raises:
            SiteNotReady: It was rejected.
        """
        path = f"/api/v1/{path}" + (f"?{urlencode(body)}" if method == "GET" else "")
        status, answer = self._site.request(method, path, None if method == "GET" else body)
        if status >= 300:
            raise SiteNotReady(f"{method} {path} returned {status}: {answer[:300]!r}")
        return json.loads(answer)

    def say(self, person: str, session: str, *texts: str, **more: Any) -> None:
        """Append turns, alternating between the person and the assistant."""
        roles = ("user", "assistant")
        messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]
        self.ask("POST", f"sessions/{session}/messages", user_id=person, messages=messages, **more)

    def context_for(self, person: str, session: str, question: str) -> Any:
        """Return the context for a question in a session."""
        return self.ask("GET", "memory/context", user_id=person, session_id=session, query=question)

    # --- retractions ---

    def plant(self, planted: Sequence[PlantedTurn]) -> None:
        for turn in planted:
            echo = turn.answer if turn.repeated == "same session" else "I see."
            self.say(turn.person, turn.session, turn.text, echo, "Thank you.", "You are welcome.")

    def repeat(self, planted: Sequence[PlantedTurn]) -> None:
        for turn in planted:
            if turn.repeated == "another session":
                session = f"asked-{turn.session}"
                self.say(turn.person, session, "Good morning.", "Good morning.")
                context_id = self.context_for(turn.person, session, turn.question)["context_id"]
                self.say(turn.person, session, turn.question, turn.answer, context_id=context_id)

    def retract(self, planted: Sequence[PlantedTurn]) -> None:
        for turn in planted:
            named = {"session_id": turn.session, "sequences": [0], "reason": "The turn was planted."}
            self.ask("POST", "retractions", user_id=turn.person, **named)

    def remaining_numbers(self, planted: Sequence[PlantedTurn]) -> list[str]:
        """Return the numbers that memory still contains, each with its location."""
        return [f"{turn.number}, {place}" for turn in planted for place in self._places(turn)]

    def _places(self, turn: PlantedTurn) -> Iterator[str]:
        for session in (turn.session, f"asked-{turn.session}", "new"):
            if turn.number in json.dumps(self.context_for(turn.person, session, turn.question)):
                yield f"context of {session}"
        found = self.ask("POST", "memory/search", user_id=turn.person, query=turn.question, match_count=100)
        if turn.number in json.dumps(found):
            yield "search"
        if turn.number in json.dumps(self.ask("GET", "facts", user_id=turn.person, limit=200)):
            yield "facts"

    # --- corrections ---

    def tell(self, facts: Sequence["CorrectedFact"]) -> None:
        for fact in facts:
            self.say(fact.person, fact.session, fact.before, "I see.")

    def remaining_facts(self, one: "CorrectedFact") -> list[str]:
        """Correct a fact that exists in two streams. Return the facts that still contain the wrong word."""
        for kind in ("user", "session"):
            stream = self._stream(one, kind)
            self.ask("POST", f"streams/{stream}/atoms", user_id=one.person, content=one.before, atom_type="fact")
        facts = self._facts(one.person)
        named = next(fact["fact_id"] for fact in facts if fact["content"] == one.before)
        self.ask("PATCH", f"facts/{named}", user_id=one.person, content=one.after)
        return [fact["content"] for fact in self._facts(one.person) if one.wrong in fact["content"]]

    def _facts(self, person: str) -> Any:
        return self.ask("GET", "facts", user_id=person, limit=200)["facts"]

    def _stream(self, fact: "CorrectedFact", kind: str) -> str:
        found = self.ask("GET", "streams", user_id=fact.person, stream_type=kind, limit=200)["streams"]
        return str(next(stream["stream_id"] for stream in found if stream["session_id"] in (None, fact.session)))


@dataclass(frozen=True)
class CorrectedFact:
    """A fact of one to four sentences.

    Args:
        person, session: Where the fact is.
        before, after: Its text before and after the correction.
        wrong: The word to correct.
    """

    person: str
    session: str
    before: str
    after: str
    wrong: str


def corrected_facts(number: int, chance: random.Random) -> list[CorrectedFact]:
    """Return facts to correct, twenty per person."""
    facts = []
    for index in range(number):
        sentences = SENTENCES[: 1 + index % len(SENTENCES)]
        old = [f"Old{chance.randrange(10**6):06}" for _ in sentences]
        wrong = old[index % len(old)]
        new = [f"New{wrong[3:]}" if name == wrong else name for name in old]
        before, after = (" ".join(map(str.format, sentences, names)) for names in (old, new))
        facts.append(CorrectedFact(f"corrected-{index // 20}", f"told-{index % 20}", before, after, wrong))
    return facts


def planted(number: int, chance: random.Random) -> list[PlantedTurn]:
    """Return turns to plant, ten per person. Half of them are repeated."""
    ways = ("not", "same session", "not", "another session")
    return [
        PlantedTurn(
            f"person-{index // len(OWNERS)}",
            f"planted-{index % len(OWNERS)}",
            OWNERS[index % len(OWNERS)],
            f"DE{chance.randrange(10**19, 10**20)}",
            ways[index % len(ways)],
        )
        for index in range(number)
    ]


def _for_each_person(work: Callable[[list[Any]], Any], items: Iterable["PlantedTurn | CorrectedFact"]) -> list[Any]:
    """Call a function with each person's turns or facts, for several people in parallel."""
    people: dict[str, list[Any]] = {}
    for item in items:
        people.setdefault(item.person, []).append(item)
    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(work, people.values()))


class Command(BaseCommand):
    help = "Retract turns and correct facts in a throw-away installation, never in this one. Count what is still said."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--retractions", type=int, default=1_000, metavar="N", help="number of retractions (1000)")
        parser.add_argument("--corrections", type=int, default=200, metavar="N", help="number of corrections (200)")
        parser.add_argument("--seed", type=int, default=41, metavar="N", help="of chance (41)")

    def handle(self, *args: Any, **options: Any) -> None:
        began, chance = time.monotonic(), random.Random(options["seed"])  # noqa: S311 (repeatable)
        turns, facts = planted(options["retractions"], chance), corrected_facts(options["corrections"], chance)
        try:
            with interrupt_on_sigterm(), Provider(latency=0) as provider, Site(provider, variables=VARIABLES) as site:
                course = Course(site)
                again = self._retracted(course, turns)
                left = self._corrected(course, facts)
        except SiteNotReady as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            raise CommandError("The drill was stopped.") from None
        repeated = sum(one.repeated != "not" for one in turns)
        numbers = {text.split(",")[0] for text in again}
        self.stdout.write(
            f"Retractions: {len(turns):,}, repeated by answers: {repeated:,}, said again: {len(numbers):,}\n"
            f"Corrections: {len(left):,}, with a duplicate left: {sum(map(bool, left)):,}\n"
            f"Took {time.monotonic() - began:.0f} s."
        )
        if again or any(left):
            raise CommandError("\n".join([*again[:20], *[text for texts in left for text in texts][:20]]))

    def _corrected(self, course: Course, facts: Sequence[CorrectedFact]) -> list[list[str]]:
        self._say("Correcting …")
        _for_each_person(course.tell, facts)
        course.rest()
        found = _for_each_person(lambda own: [course.remaining_facts(one) for one in own], facts)
        return [left for own in found for left in own]

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()

    def _retracted(self, course: Course, turns: Sequence[PlantedTurn]) -> list[str]:
        for what, work in (("Planting", course.plant), ("Repeating", course.repeat), ("Retracting", course.retract)):
            self._say(f"{what} …")
            _for_each_person(work, turns)
            course.rest()
        return [again for found in _for_each_person(course.remaining_numbers, turns) for again in found]


if __name__ == "__main__":
    Command().run_from_argv(["python -m", "drill.forgetting", *sys.argv[1:]])
