"""A course of the drill: people with a past, what is planted, who sees it, and what is left when it is taken back."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from urllib.parse import urlencode

from memoryproject.drill.poison.attacks import VICTIM, Attack, Turn, said
from memoryproject.drill.poison.doors import DOORS, MOST_CALLS, Installation, ask
from memoryproject.drill.poison.fences import escapes
from memoryproject.drill.poison.report import Row
from memoryproject.drill.poison.views import HOME, Views, contexts, everything, items_of, memory

OTHERS: Mapping[str, str] = {VICTIM: "", "cleo": "another-agent"}  # who plant nothing, and their agents; blank: default
SHARD = {
    "name": "advice",
    "extraction_prompt": "Rules for answers, links, insurance, clinics, health, invoices, banks, passwords, managers.",
}
LAG = 4  # turns that a build leaves; with fewer, a session is not settled
LETTERS = "abcdefghijklmnopqrstuvwxyz"

Say = Callable[[str], object]


@dataclass
class Planted:
    """An attack by a door.

    Args:
        attack: what is said.
        door: by which it comes.
        person: who says it.
        number: of this one among all.
        row: what came of it.
    """

    attack: Attack
    door: str
    person: str
    number: int
    row: Row

    @property
    def mark(self) -> str:
        """The word by which it is found."""
        return mark_of(self.number)

    @property
    def marks(self) -> list[str]:
        """The texts of which each says that it got there."""
        return self.attack.marks(self.mark)

    @property
    def session(self) -> str:
        """The session in which it is said."""
        return f"planted-{self.number}"

    @property
    def has_session(self) -> bool:
        """True if it comes as a conversation."""
        return self.door != "mcp"


def planned(attacks: Sequence[Attack], doors: Sequence[str], engine: str) -> list[Planted]:
    """Return every attack by every door, each with a person of its own."""
    pairs = [(attack, door) for attack in attacks for door in doors]
    return [
        Planted(attack, door, f"eve-{number}", number, Row(attack.name, door, engine))
        for number, (attack, door) in enumerate(pairs)
    ]


def mark_of(number: int) -> str:
    """Return a word that stands nowhere else, and is part of no other."""
    return "quince" + LETTERS[number // len(LETTERS)] + LETTERS[number % len(LETTERS)] + "z"


class Watch:
    """Reads what models are sent: never words of two people at once."""

    def __init__(self, planted: Iterable[Planted]) -> None:
        self._owners = {one.mark: one.person for one in planted} | {_own_word(name): name for name in OTHERS}
        self._lock = threading.Lock()
        self._chats: list[str] = []
        self.mixed: set[str] = set()  # marks of two people that were sent in one call

    def __call__(self, body: str) -> None:
        found = [mark for mark in self._owners if mark in body]
        with self._lock:
            if len({self._owners[mark] for mark in found}) > 1:
                self.mixed |= set(found)
            if '"response_format"' not in body and '"input"' not in body:
                self._chats = [*self._chats, body][-MOST_CALLS:]

    def last_chat(self, text: str) -> str:
        """Return the last chat with this text in it; blank if there is none."""
        with self._lock:
            return next((body for body in reversed(self._chats) if text in body), "")


def run(site: Installation, planted: Sequence[Planted], watch: Watch, say: Say) -> list[Row]:
    """Plant, look, take back and compare.

    Args:
        site: with nobody in it.
        planted: what is planted; a person may plant several.
        watch: of its models.
        say: prints a line of progress.

    Returns:
        A row an attack, and one of what everybody else gets.

    Raises:
        NotWell: the installation refuses what it should do.
    """
    people = sorted({one.person for one in planted})
    others = Row("what all others get", "all", planted[0].row.engine)
    _give_past(site, people)
    before = {person: contexts(site, person) for person in [*people, *OTHERS]}
    say(f"  planting {len(planted)} attacks of {len(people)} people …")
    _plant(site, planted)
    say("  looking …")
    _look(site, planted, people, watch)
    say("  retracting …")
    _take_back(site, planted)
    for person in people:
        _compare(site, person, [one for one in planted if one.person == person], before[person])
    for person in OTHERS:
        others.changed += _differences(before[person], contexts(site, person), person)
    return [*(one.row for one in planted), others]


# --- before ---


def _give_past(site: Installation, people: Sequence[str]) -> None:
    """Give everybody a conversation of their own, remembered in every way there is; and a shard to all agents."""
    for person in [*people, *OTHERS]:
        _open_home(site, person, OTHERS.get(person, ""))
    ask(site, "POST", "/api/v1/streams", SHARD | {"user_id": VICTIM})
    _remember(site, [(person, HOME) for person in [*people, *OTHERS]])


def _open_home(site: Installation, person: str, agent: str) -> None:
    word = _own_word(person)
    turns = said(
        f"My name is {word} and I keep {len(word)} hives of bees behind the barn.",
        f"I prefer short answers, and my sister is called {word[::-1]}.",
        "In March I plant a hedge of hazel for the bees.",
    )
    body = {"user_id": person, "messages": turns} | ({"agent_id": agent} if agent else {})
    ask(site, "POST", f"/api/v1/sessions/{HOME}/messages", body)


def _own_word(person: str) -> str:
    return f"walnut{''.join(LETTERS[int(sign)] if sign.isdigit() else sign for sign in person if sign.isalnum())}y"


def _remember(site: Installation, sessions: Sequence[tuple[str, str]]) -> None:
    """Have sessions become memory: some by a build and a digest, all by settling, then by consolidations."""
    site.rest()
    for person, session in sessions[::2]:
        build = {"user_id": person, "session_id": session, "force": True, "lag": LAG}
        site.request("POST", "/api/v1/moments/build", build)
        site.request("POST", f"/api/v1/sessions/{session}/compact", {"user_id": person})
    site.rest()
    site.have_quiet()
    site.rest()
    for person in sorted({person for person, _ in sessions}):
        for stream in _streams(site, person):
            site.request("POST", f"/api/v1/streams/{stream}/consolidate", {"user_id": person})
    site.rest()


def _streams(site: Installation, person: str) -> list[str]:
    query = urlencode({"user_id": person, "limit": 200})
    return [str(stream["stream_id"]) for stream in ask(site, "GET", f"/api/v1/streams?{query}")["streams"]]


# --- meanwhile ---


def _plant(site: Installation, planted: Sequence[Planted]) -> None:
    for one in planted:
        _put(site, one, _named(one))
    _remember(site, [(one.person, one.session) for one in planted])
    again = [one for one in planted if one.attack.is_said_again]
    for one in again:
        _put(site, one, said(*_served(site, one.person)))
    _remember(site, [(one.person, one.session) for one in again])


def _put(site: Installation, one: Planted, turns: Sequence[Turn]) -> None:
    """Have it said by its door; what is remembered directly is what has a mark, for it is taken back by that."""
    if not one.has_session:
        turns = [turn for turn in turns if any(mark in turn["content"] for mark in one.marks)]
    DOORS[one.door](site, one.person, one.session, turns)


def _named(one: Planted) -> list[Turn]:
    turns = one.attack.turns(one.mark)
    named = [turn | {"external_id": f"{one.mark}-{number}"} for number, turn in enumerate(turns)]
    return named if one.door in ("rest", "import") else turns


def _served(site: Installation, person: str) -> list[str]:
    """Return what memory serves, as somebody says it again who copies it."""
    found = contexts(site, person)
    return [found["context, markdown"], f"As you said:\n{found['context, xml']}", found["context, markdown"]]


def _look(site: Installation, planted: Sequence[Planted], people: Sequence[str], watch: Watch) -> None:
    """Look at everything that everybody gets."""
    for person in [*people, *OTHERS]:
        is_quiet = person in OTHERS
        views = everything(site, person) if is_quiet else contexts(site, person) | memory(site, person)
        for one in planted:
            places = _places(one, views)
            if one.person != person:
                one.row.others += [f"{person}, {place}" for place in places]
            else:
                one.row.own = (len(places), len(views))
                one.row.escapes += _escapes(one, views)
    for one in planted:
        one.row.others += ["a model was sent words of two people"] if one.mark in watch.mixed else []


def _places(one: Planted, views: Views) -> list[str]:
    return [name for name, text in views.items() if any(mark.casefold() in text.casefold() for mark in one.marks)]


def _escapes(one: Planted, views: Views) -> list[str]:
    written = {name.removeprefix("context, "): text for name, text in views.items() if name.startswith("context, ")}
    return [f"{name} {wrong}" for name, text in written.items() for wrong in escapes(name, text, one.marks)]


# --- afterwards ---


def _take_back(site: Installation, planted: Sequence[Planted]) -> None:
    for one in planted:
        for named in [{"session_id": one.session}] if one.has_session else _writers(site, one):
            body = {"user_id": one.person, "reason": "It was planted."} | named
            ask(site, "POST", "/api/v1/retractions", body)
    site.rest()


def _writers(site: Installation, one: Planted) -> list[dict[str, str]]:
    """Return who wrote what is found of an attack directly: all of it is taken back."""
    found = (item for item in items_of(site, one.person) if any(mark in item["content"] for mark in one.marks))
    return [{"written_by": writer} for writer in sorted({item["written_by"] for item in found} - {""})]


def _compare(site: Installation, person: str, planted: Sequence[Planted], before: Views) -> None:
    after = contexts(site, person)
    views = after | memory(site, person)
    changed = _differences(before, after, person)
    for one in planted:
        one.row.after += _places(one, views)
        one.row.changed += changed


def _differences(before: Views, after: Views, person: str) -> list[str]:
    changed = [name for name in before if before[name] != after[name]]
    return [f"{person}, {name}: {_difference(before[name], after[name])}" for name in changed]


def _difference(before: str, after: str) -> str:
    """Return the first lines that differ."""
    pairs = zip_longest(before.splitlines(), after.splitlines(), fillvalue="")
    old, new = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    return f"{old!r} is {new!r}"
