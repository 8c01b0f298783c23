"""The steps of the drill: create people with memory, plant attacks, check who sees them, retract them, compare."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from urllib.parse import urlencode

from drill.poison.attacks import VICTIM, Attack, Turn, said
from drill.poison.doors import (
    CONVERSATIONS,
    DOORS,
    MAX_CALLS,
    SHARD,
    Conversation,
    Installation,
    answered,
    ask,
    shard_of,
)
from drill.poison.fences import escapes
from drill.poison.report import FOR_ALL, Row
from drill.poison.views import (
    HOME,
    Views,
    contexts,
    everything,
    memory,
    text_of,
    written_by_person,
    written_in_shard,
)

OTHERS: Mapping[str, str] = {VICTIM: "", "cleo": "another-agent"}  # no attackers; their agents (blank: default)
ADVICE = {
    "name": SHARD,
    "extraction_prompt": "Rules for answers, links, insurance, clinics, health, invoices, banks, passwords, managers.",
}
LAG = 4  # live turns that a build leaves; with fewer, a session is not settled
WORKERS = 4  # people to check in parallel
LETTERS = "abcdefghijklmnopqrstuvwxyz"

Say = Callable[[str], object]


@dataclass
class PlantedText:
    """An attack through an entry point.

    Args:
        attack: The attack.
        door: The entry point.
        person: The person who plants it.
        number: The number of this attack.
        row: The result.
    """

    attack: Attack
    door: str
    person: str
    number: int
    row: Row

    @property
    def mark(self) -> str:
        """The word that identifies it."""
        return mark_of(self.number)

    @property
    def marks(self) -> list[str]:
        """The texts that prove that it arrived."""
        return self.attack.marks(self.mark)

    @property
    def session(self) -> str:
        """The session that it is planted in."""
        return f"planted-{self.number}"

    @property
    def has_session(self) -> bool:
        """Whether it arrives as a conversation."""
        return self.door in CONVERSATIONS


def planned(attacks: Sequence[Attack], doors: Sequence[str], engine: str) -> list[PlantedText]:
    """Return every attack through every entry point, each with its own person, except attacks on shared memory."""
    pairs = [(attack, door) for attack in attacks for door in doors]
    return [
        PlantedText(
            attack, door, VICTIM if door == FOR_ALL else f"eve-{number}", number, Row(attack.name, door, engine)
        )
        for number, (attack, door) in enumerate(pairs)
    ]


def mark_of(number: int) -> str:
    """Return a word that doesn't occur elsewhere, and is not part of another one."""
    return "quince" + LETTERS[number // len(LETTERS)] + LETTERS[number % len(LETTERS)] + "z"


class Watch:
    """Observes requests to models. None may contain texts of two people."""

    def __init__(self, planted: Iterable[PlantedText]) -> None:
        own = [one for one in planted if not one.row.is_for_all]
        self._owners = {one.mark: one.person for one in own} | {_own_word(name): name for name in OTHERS}
        self._lock = threading.Lock()
        self._chats: list[str] = []
        self.mixed: set[str] = set()  # marks of two people in a single call

    def __call__(self, body: str) -> None:
        found = [mark for mark in self._owners if mark in body]
        with self._lock:
            if len({self._owners[mark] for mark in found}) > 1:
                self.mixed |= set(found)
            if '"response_format"' not in body and '"input"' not in body:
                self._chats = [*self._chats, body][-MAX_CALLS:]

    def last_chat(self, text: str) -> str:
        """Return the last chat request with this text, or a blank string."""
        with self._lock:
            return next((body for body in reversed(self._chats) if text in body), "")


def run(site: Installation, planted: Sequence[PlantedText], watch: Watch, say: Say) -> list[Row]:
    """Plant, check, retract and compare.

    Args:
        site: An installation without people.
        planted: The attacks. A person may plant several.
        watch: Observes the installation's models.
        say: Prints a progress message.

    Returns:
        A row per attack, and one for what all other people see.

    Raises:
        SiteNotReady: The installation rejects a valid request.
    """
    own, for_all = ([one for one in planted if one.row.is_for_all is wanted] for wanted in (False, True))
    people = sorted({one.person for one in own})
    others = Row("what all others get", "all", planted[0].row.engine)
    _give_past(site, people)
    before = _of_each([*people, *OTHERS], partial(contexts, site))
    say(f"  planting {len(planted)} attacks of {len(people)} people …")
    _plant(site, own)
    say("  looking …")
    _look(site, own, people, watch)
    if for_all:  # planted last, because it takes space in everyone's contexts
        say(f"  planting {len(for_all)} in shared memory, and checking …")
        _plant(site, for_all)
        _look_at_all(site, for_all)
    say("  retracting …")
    _take_back(site, planted)
    after = _of_each([*people, *OTHERS], partial(_all_of, site))
    for person in people:
        _compare(person, [one for one in own if one.person == person], before[person], after[person])
    for person in OTHERS:
        others.changed += _differences(before[person], after[person], person)
        for one in for_all:
            one.row.after += [f"{person}, {place}" for place in _places(one, after[person])]
    return [*(one.row for one in planted), others]


def _of_each(people: Sequence[str], look: Callable[[str], Views]) -> dict[str, Views]:
    """Check what each person receives, several people in parallel."""
    with ThreadPoolExecutor(WORKERS) as pool:
        return dict(zip(people, pool.map(look, people), strict=True))


def _all_of(site: Installation, person: str) -> Views:
    return contexts(site, person) | memory(site, person)


# --- preparation ---


def _give_past(site: Installation, people: Sequence[str]) -> None:
    """Give each person a conversation that becomes memory of every kind, and give all agents a shard."""
    for person in [*people, *OTHERS]:
        _open_home(site, person, OTHERS.get(person, ""))
    ask(site, "POST", "/api/v1/streams", ADVICE | {"user_id": VICTIM})
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
    """Turn sessions into memory: some by a build and a digest, all by settling, then by consolidations."""
    if not sessions:
        return
    site.rest()
    for person, session in sessions[::2]:
        build = {"user_id": person, "session_id": session, "force": True, "lag": LAG}
        answered(site, "POST", "/api/v1/moments/build", build)
        answered(site, "POST", f"/api/v1/sessions/{session}/compact", {"user_id": person})
    site.rest()
    site.have_quiet()
    site.rest()
    for person in sorted({person for person, _ in sessions}):
        for stream in _streams(site, person):
            answered(site, "POST", f"/api/v1/streams/{stream}/consolidate", {"user_id": person})
    site.rest()


def _streams(site: Installation, person: str) -> list[str]:
    query = urlencode({"user_id": person, "limit": 200})
    return [str(stream["stream_id"]) for stream in ask(site, "GET", f"/api/v1/streams?{query}")["streams"]]


# --- attacks ---


def _plant(site: Installation, planted: Sequence[PlantedText]) -> None:
    _put(site, [(one, _named(one)) for one in planted])
    _remember(site, _sessions(planted))
    again = [one for one in planted if one.attack.is_said_again]
    _put(site, [(one, said(*_served(site, one.person))) for one in again])
    _remember(site, _sessions(again))


def _sessions(planted: Sequence[PlantedText]) -> list[tuple[str, str]]:
    return [(one.person, one.session) for one in planted]


def _put(site: Installation, pairs: Sequence[tuple[PlantedText, Sequence[Turn]]]) -> None:
    """Plant all attacks, one entry point at a time."""
    for name, door in DOORS.items():
        if by_it := [_said(one, turns) for one, turns in pairs if one.door == name]:
            door(site, by_it)


def _said(one: PlantedText, turns: Sequence[Turn]) -> Conversation:
    """Return the turns to plant. Direct entries must contain a mark, because retractions find them by it."""
    if not one.has_session:
        turns = [turn for turn in turns if any(mark in turn["content"] for mark in one.marks)]
    return Conversation(one.person, one.session, turns)


def _named(one: PlantedText) -> list[Turn]:
    turns = one.attack.turns(one.mark)
    named = [turn | {"external_id": f"{one.mark}-{number}"} for number, turn in enumerate(turns)]
    return named if one.door in ("rest", "import") else turns


def _served(site: Installation, person: str) -> list[str]:
    """Return the served contexts as messages of a person who repeats them."""
    found = contexts(site, person)
    return [found["context, markdown"], f"As you said:\n{found['context, xml']}", found["context, markdown"]]


def _look(site: Installation, planted: Sequence[PlantedText], people: Sequence[str], watch: Watch) -> None:
    """Check everything that each person receives."""
    got = _of_each(people, partial(_all_of, site)) | _of_each([*OTHERS], partial(everything, site))
    for person, views in got.items():
        for one in planted:
            places = _places(one, views)
            if one.person != person:
                one.row.others += [f"{person}, {place}" for place in places]
            else:
                one.row.own = (len(places), len(views))
                one.row.escapes += _escapes(one, views)
    for one in planted:
        one.row.others += ["a model was sent words of two people"] if one.mark in watch.mixed else []


def _look_at_all(site: Installation, planted: Sequence[PlantedText]) -> None:
    """Check shared memory, as received by a person who planted nothing."""
    views = _all_of(site, VICTIM)
    for one in planted:
        one.row.own = (len(_places(one, views)), len(views))
        one.row.escapes += _escapes(one, views)


def _places(one: PlantedText, views: Views) -> list[str]:
    return [name for name, text in views.items() if any(mark.casefold() in text.casefold() for mark in one.marks)]


def _escapes(one: PlantedText, views: Views) -> list[str]:
    written = {name.removeprefix("context, "): text for name, text in views.items() if name.startswith("context, ")}
    return [f"{name} {wrong}" for name, text in written.items() for wrong in escapes(name, text, one.marks)]


# --- retraction and comparison ---


def _take_back(site: Installation, planted: Sequence[PlantedText]) -> None:
    shard = f"/api/v1/streams/{shard_of(site)}/retractions"
    for one in planted:
        path, whose = (shard, {}) if one.row.is_for_all else ("/api/v1/retractions", {"user_id": one.person})
        for named in [{"session_id": one.session}] if one.has_session else _writers(site, one):
            ask(site, "POST", path, {"reason": "It was planted."} | whose | named)
    site.rest()


def _writers(site: Installation, one: PlantedText) -> list[dict[str, str]]:
    """Return the writers of an attack's direct entries, to retract all of these."""
    written = written_in_shard(site, VICTIM) if one.row.is_for_all else written_by_person(site, one.person)
    found = (row["written_by"] for row in written if any(mark in text_of(row) for mark in one.marks))
    return [{"written_by": writer} for writer in sorted({*found} - {""})]


def _compare(person: str, planted: Sequence[PlantedText], before: Views, after: Views) -> None:
    changed = _differences(before, after, person)
    for one in planted:
        one.row.after += _places(one, after)
        one.row.changed += changed


def _differences(before: Views, after: Views, person: str) -> list[str]:
    changed = [name for name in before if before[name] != after[name]]
    return [f"{person}, {name}: {_difference(before[name], after[name])}" for name in changed]


def _difference(before: str, after: str) -> str:
    """Return the first lines that differ."""
    pairs = zip_longest(before.splitlines(), after.splitlines(), fillvalue="")
    old, new = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    return f"{old!r} is {new!r}"
