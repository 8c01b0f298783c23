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
from drill.poison.site import Attacked
from drill.provider import Provider
from drill.site import NotWell, Site
from drill.stoppable import stoppable

WHO = ("landlord", "plumber", "florist", "dentist", "tailor", "baker", "gardener", "butcher", "cobbler", "painter")
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
class Planted:
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
        self._site, self._whole = site, Attacked(site, Watch([]))

    def rest(self) -> None:
        """Settle all sessions, and wait for all jobs."""
        self._whole.have_quiet()
        self._whole.rest()

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """Make a request about a person, and return the response.

        Raises:
            NotWell: It was rejected.
        """
        path = f"/api/v1/{path}" + (f"?{urlencode(body)}" if method == "GET" else "")
        status, answer = self._site.request(method, path, None if method == "GET" else body)
        if status >= 300:
            raise NotWell(f"{method} {path} returned {status}: {answer[:300]!r}")
        return json.loads(answer)

    def say(self, person: str, session: str, *texts: str, **more: Any) -> None:
        """Append turns, alternating between the person and the assistant."""
        roles = ("user", "assistant")
        messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
        self.ask("POST", f"sessions/{session}/messages", user_id=person, messages=messages, **more)

    def served(self, person: str, session: str, question: str) -> Any:
        """Return the context for a question in a session."""
        return self.ask("GET", "memory/context", user_id=person, session_id=session, query=question)

    # --- retractions ---

    def plant(self, planted: Sequence[Planted]) -> None:
        for one in planted:
            echo = one.answer if one.repeated == "same session" else "I see."
            self.say(one.person, one.session, one.text, echo, "Thank you.", "You are welcome.")

    def repeat(self, planted: Sequence[Planted]) -> None:
        for one in planted:
            if one.repeated == "another session":
                session = f"asked-{one.session}"
                self.say(one.person, session, "Good morning.", "Good morning.")
                context_id = self.served(one.person, session, one.question)["context_id"]
                self.say(one.person, session, one.question, one.answer, context_id=context_id)

    def retract(self, planted: Sequence[Planted]) -> None:
        for one in planted:
            named = {"session_id": one.session, "sequences": [0], "reason": "The turn was planted."}
            self.ask("POST", "retractions", user_id=one.person, **named)

    def said_again(self, planted: Sequence[Planted]) -> list[str]:
        """Return the numbers that memory still contains, each with its location."""
        return [f"{one.number}, {place}" for one in planted for place in self._places(one)]

    def _places(self, one: Planted) -> Iterator[str]:
        for session in (one.session, f"asked-{one.session}", "new"):
            if one.number in json.dumps(self.served(one.person, session, one.question)):
                yield f"context of {session}"
        found = self.ask("POST", "memory/search", user_id=one.person, query=one.question, match_count=100)
        if one.number in json.dumps(found):
            yield "search"
        if one.number in json.dumps(self.ask("GET", "facts", user_id=one.person, limit=200)):
            yield "facts"

    # --- corrections ---

    def tell(self, facts: Sequence["Told"]) -> None:
        for one in facts:
            self.say(one.person, one.session, one.before, "I see.")

    def left(self, one: "Told") -> list[str]:
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

    def _stream(self, one: "Told", kind: str) -> str:
        found = self.ask("GET", "streams", user_id=one.person, stream_type=kind, limit=200)["streams"]
        return str(next(stream["stream_id"] for stream in found if stream["session_id"] in (None, one.session)))


@dataclass(frozen=True)
class Told:
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


def told(number: int, chance: random.Random) -> list[Told]:
    """Return facts to correct, twenty per person."""
    facts = []
    for place in range(number):
        sentences = SENTENCES[: 1 + place % len(SENTENCES)]
        old = [f"Old{chance.randrange(10**6):06}" for _ in sentences]
        wrong = old[place % len(old)]
        new = [f"New{wrong[3:]}" if name == wrong else name for name in old]
        before, after = (" ".join(map(str.format, sentences, names)) for names in (old, new))
        facts.append(Told(f"corrected-{place // 20}", f"told-{place % 20}", before, after, wrong))
    return facts


def planted(number: int, chance: random.Random) -> list[Planted]:
    """Return turns to plant, ten per person. Half of them are repeated."""
    ways = ("not", "same session", "not", "another session")
    return [
        Planted(
            f"person-{place // len(WHO)}",
            f"planted-{place % len(WHO)}",
            WHO[place % len(WHO)],
            f"DE{chance.randrange(10**19, 10**20)}",
            ways[place % len(ways)],
        )
        for place in range(number)
    ]


def _each(work: Callable[[list[Any]], Any], told: Iterable["Planted | Told"]) -> list[Any]:
    """Call a function with each person's turns or facts, for several people in parallel."""
    people: dict[str, list[Any]] = {}
    for one in told:
        people.setdefault(one.person, []).append(one)
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
        turns, facts = planted(options["retractions"], chance), told(options["corrections"], chance)
        try:
            with stoppable(), Provider(latency=0) as provider, Site(provider, variables=VARIABLES) as site:
                course = Course(site)
                again = self._retracted(course, turns)
                left = self._corrected(course, facts)
        except NotWell as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            raise CommandError("The drill was stopped.") from None
        repeated = sum(one.repeated != "not" for one in turns)
        numbers = {text.split(",")[0] for text in again}
        self.stdout.write(
            f"Retractions: {len(turns):,}, repeated by answers: {repeated:,}, said again: {len(numbers):,}\n"
            f"Corrections: {len(left):,}, with a twin left: {sum(map(bool, left)):,}\n"
            f"Took {time.monotonic() - began:.0f} s."
        )
        if again or any(left):
            raise CommandError("\n".join([*again[:20], *[text for texts in left for text in texts][:20]]))

    def _corrected(self, course: Course, facts: Sequence[Told]) -> list[list[str]]:
        self._say("Correcting …")
        _each(course.tell, facts)
        course.rest()
        found = _each(lambda own: [course.left(one) for one in own], facts)
        return [left for own in found for left in own]

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()

    def _retracted(self, course: Course, turns: Sequence[Planted]) -> list[str]:
        for what, work in (("Planting", course.plant), ("Repeating", course.repeat), ("Retracting", course.retract)):
            self._say(f"{what} …")
            _each(work, turns)
            course.rest()
        return [again for found in _each(course.said_again, turns) for again in found]


if __name__ == "__main__":
    Command().run_from_argv(["python -m", "drill.forgetting", *sys.argv[1:]])
