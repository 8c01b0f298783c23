"""Find the other people whom statements are about, and those who speak in a session.

A statement that mentions a person with a relationship ("my sister Anna") adds a known person, unless one matches. A
statement that mentions only a name is about the known person with this name. Names and relationships of known people
are derived from the statements about them, and rebuilt whenever such a statement changes.

The user of a session is the speaker whose name is their `user_id` or a name from facts about them. If there is none, it
is the first speaker with a name. All remaining speakers are other people.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from django.db.models import Min

from moments_app.engines.extractive.language import language_of
from moments_app.engines.extractive.sentences import is_about_speaker
from moments_app.engines.statements import NAME, SPEAKER
from moments_app.engines.statements.named_people import (
    USER,
    NamedPerson,
    named_people,
    named_person,
    relationship_of,
    short_name,
    with_first_names,
)
from moments_app.models import KnownPerson, MemoryAtom, MemoryStream
from moments_app.models.atom import ABOUT
from moments_app.models.known_person import person_key
from sessions_app.models import Message, Session, UserProfile

BATCH_SIZE = 500  # statements per batch
MAX_STATEMENTS = 100  # maximum statements from which a person's names are derived
SPEECH = (Message.Role.USER, Message.Role.ASSISTANT)
ASSISTANT = "Assistant"  # name under which unnamed assistants are quoted


class Said(NamedTuple):
    """The fields of a `MemoryAtom` from which the mentioned person is derived."""

    content: str
    subject: str
    about_kind: str
    state: str


def link_people(atoms: Iterable[MemoryAtom]) -> None:
    """Link unsaved statements to the known people they are about.

    The caller has called `describe` for the statements and locked the users.
    """
    own = [atom for atom in atoms if atom.user_id and not atom.is_candidate]
    for user in sorted({atom.user_id for atom in own if atom.user_id}):
        _link([atom for atom in own if atom.user_id == user], user)


def link_all(user: int) -> None:
    """Link all statements of a user, whom the caller has locked."""
    atoms = MemoryAtom.objects.filter(user=user, is_candidate=False, about=None, position=None)
    linked = list(atoms.defer("search_vector").in_order())
    link_people(linked)
    MemoryAtom.objects.bulk_update([atom for atom in linked if atom.about_id], ["about"], batch_size=BATCH_SIZE)
    rebuild_known_people(set(KnownPerson.objects.filter(user=user).values_list("pk", flat=True)))


def link_corrected(atom: MemoryAtom, wrong: MemoryAtom) -> None:
    """Link a correction to the person of the corrected statement, if a name or a relationship is the same."""
    named, was = named_person(atom.content), named_person(wrong.content)
    if named and was:
        is_same = named.name == was.name or named.relationship == was.relationship
    else:
        is_same = named is None and was is None and atom.subject == wrong.subject
    if is_same:
        atom.about_id = wrong.about_id
    else:
        link_people([atom])


def _link(statements: Sequence[MemoryAtom], user: int) -> None:
    atoms = [atom for atom in statements if _may_name(atom)]
    if not atoms:
        return
    names = MemoryAtom.objects.names_of_user(user)
    names |= with_first_names(atom.value for atom in statements if atom.attribute == NAME and atom.subject in names)
    people = People(KnownPerson.objects.filter(user=user).order_by("pk"), partial(_add, user))
    mentions = [(atom, *_mention(atom, names)) for atom in atoms]
    # Introductions come first, because other statements may name a person before they are introduced.
    for atom, named, introduces in sorted(mentions, key=lambda mention: not mention[-1]):
        atom.about = people.find(named, adds=introduces) if named else None
    _relate_users(atoms, user)


def _mention(atom: MemoryAtom, names: Collection[str]) -> tuple[NamedPerson | None, bool]:
    """Return the person whom a statement is about, and whether the statement introduces this person.

    It introduces a person if it mentions a relationship, or if an engine assigned it to the person. A statement about a
    relative is also about the user.
    """
    is_assigned = atom.about_kind == MemoryAtom.About.PERSON
    relative = atom.subject if is_assigned and relationship_of(atom.subject, atom.content, names) else ""
    if is_assigned and (relative or _is_about_user(atom, names)):
        atom.about_kind = ABOUT[MemoryStream.Type(atom.stream.stream_type)]
    named = named_in(_statement_fields(atom), names)
    if named is None and relative:
        named = NamedPerson(relative, "")
    is_person = atom.about_kind == MemoryAtom.About.PERSON
    return named, named is not None and bool(named.relationship or relative or is_person)


def _add(user: int, key: str, name: str) -> KnownPerson:
    """Add a person. If no other person has the name, link earlier statements with that name to them."""
    is_only = not KnownPerson.objects.filter(user=user).named(name).exists()
    person = KnownPerson.objects.create(user_id=user, key=key, name=name)
    if is_only:
        earlier = MemoryAtom.objects.filter(user=user, is_candidate=False, about=None, subject=name)
        earlier.update(about=person)
    return person


def _is_about_user(atom: MemoryAtom, names: Collection[str]) -> bool:
    """Return whether a statement is about the user or a relative, although an engine assigned it to another person."""
    named = named_person(atom.content)
    return atom.subject in names or (named is not None and named.owner in names)


def _relate_users(atoms: Sequence[MemoryAtom], user: int) -> None:
    """Set `related_users` of statements that other speakers made about themselves, if the speaker is another user.

    If several speakers have the same name, only the first one's key is derived from the name alone.
    """
    spoke = [one for one in atoms if one.about_kind == MemoryAtom.About.PERSON and one.speaker == one.subject]
    own = [(atom, atom.about.key) for atom in spoke if atom.about]
    if not own:
        return
    application = UserProfile.objects.filter(pk=user).values("application")
    ids = {name for atom, key in own for name in (atom.speaker, key)}
    named = UserProfile.objects.filter(application__in=application, user_id__in=ids).exclude(pk=user)
    users = {user_id: person_key(user_id, ()) for user_id in named.values_list("user_id", flat=True)}
    for atom, key in own:
        atom.related_users = [name for name in (atom.speaker, key) if users.get(name) == key][:1]


def _may_name(atom: MemoryAtom) -> bool:
    is_named = named_person(atom.content) or named_in(_statement_fields(atom), USER)
    return is_named is not None or atom.about_id is not None


def _statement_fields(atom: MemoryAtom) -> Said:
    return Said(*(getattr(atom, field) for field in Said._fields))


def rebuild_known_people(pks: Collection[int]) -> None:
    people = list(KnownPerson.objects.filter(pk__in=pks).order_by("pk"))
    names = {user: MemoryAtom.objects.names_of_user(user) for user in {person.user_id for person in people}}
    for person in people:
        before = (person.name, person.aliases, person.relationship)
        _update_from_statements(person, names[person.user_id])
        if (person.name, person.aliases, person.relationship) != before:
            person.save(update_fields=["name", "aliases", "relationship"])


def _update_from_statements(person: KnownPerson, names: Collection[str]) -> None:
    statements = MemoryAtom.objects.findable().filter(about=person, is_wrong=False).in_profile()
    rows = [Said(*row) for row in statements.values_list(*Said._fields)[:MAX_STATEMENTS]]
    called, relationship = called_in(rows, names)
    person.name, *person.aliases = called or person.names
    person.relationship = relationship or _stated_relationship(person, rows, names)


def _stated_relationship(person: KnownPerson, rows: Iterable[Said], names: Collection[str]) -> str:
    valid = [row.content for row in rows if row.state != MemoryAtom.State.ENDED]
    stated = (relationship_of(name, text, names) for text in valid for name in person.names)
    return next(filter(None, stated), "")


def called_in(statements: Sequence[Said], names: Collection[str]) -> tuple[list[str], str]:
    """Return a person's names and relationship in statements, which are in the order of `in_profile`.

    Names from valid statements come first. The first name in the list is the name in the first of these statements, or
    a longer form of that name.
    """
    named = [(one, found) for one in statements if (found := named_in(one, names))]
    held = [found for one, found in named if one.state != MemoryAtom.State.ENDED]
    called = list(dict.fromkeys(found.name for found in (*held, *(found for _, found in named))))
    full = [name for name in called if short_name(name) == called[0]]
    return list(dict.fromkeys([*full, *called])), next((found.relationship for found in held if found.relationship), "")


def named_in(statement: Said, names: Collection[str]) -> NamedPerson | None:
    """Return the person whom a statement is about, or None if it is only about the user."""
    if statement.about_kind == MemoryAtom.About.PERSON:
        return NamedPerson(statement.subject, "") if statement.subject else None
    for named in named_people(statement.content):
        if not named.owner or named.owner in names:
            return named
    speaker = SPEAKER.match(statement.content)
    is_of_user = statement.subject in names or (speaker and speaker[1] == statement.subject)
    return NamedPerson(statement.subject, "") if statement.subject and not is_of_user else None


class People:
    def __init__(self, known: Iterable[KnownPerson], add: Callable[[str, str], KnownPerson]) -> None:
        self.known = list(known)
        self._add = add

    def find(self, named: NamedPerson, *, adds: bool) -> KnownPerson | None:
        """Return the person who has this name and relationship.

        Args:
            adds: whether to add the person if no known person matches. If False, return None if none or several
                match.
        """
        candidates = [one for one in self.known if _is_called(one, named.name)]
        person = _matching_person(candidates, named, adds=adds)
        if person is None and adds:
            person = self._add(person_key(named.name, [one.key for one in self.known]), named.name)
            self.known.append(person)
        if person and named.name not in (person.name, *person.aliases):
            person.aliases.append(named.name)
        if person and named.relationship:
            person.relationship = named.relationship
        return person


def _is_called(person: KnownPerson, name: str) -> bool:
    """Return whether a name may mean a person: "Anna" may mean "Anna Berg", but "Anna Holm" may not."""
    names = {known.casefold() for known in (person.name, *person.aliases)}
    is_short_of = short_name(person.name).casefold() == name.casefold()
    has_short = not short_name(person.name) and short_name(name).casefold() == person.name.casefold()
    return name.casefold() in names or is_short_of or has_short


def _matching_person(candidates: Sequence[KnownPerson], named: NamedPerson, *, adds: bool) -> KnownPerson | None:
    if not named.relationship:
        unrelated = [person for person in candidates if not person.relationship] if adds else []
        return candidates[0] if len(candidates) == 1 else next(iter(unrelated), None)
    related = [person for person in candidates if person.relationship == named.relationship]
    unrelated = [person for person in candidates if not person.relationship]
    return related[0] if related else unrelated[0] if len(unrelated) == 1 else None


def other_speakers(session: Session, turns: Iterable[Message], own: str) -> frozenset[str]:
    named = {turn.name for turn in turns if turn.role in SPEECH} - {"", session.agent_id}
    return frozenset(name for name in named if name.casefold() != own.casefold())


def own_name(session: Session, turns: Iterable[Message]) -> str:
    """Return the name under which the user speaks in a session; blank if none of these turns has a name."""
    if not any(turn.name for turn in turns):
        return ""
    turns_of_user = session.messages.filter(user_id=session.user_id, role=Message.Role.USER).exclude(name="")
    names: list[str] = [
        name for name, _ in turns_of_user.values_list("name").annotate(first=Min("sequence")).order_by("first")
    ]
    if len(names) < 2:
        return "".join(names)
    own = {name.casefold() for name in (session.user.user_id, *MemoryAtom.objects.names_of_user(session.user_id))}
    return next((name for name in names if name.casefold() in own), names[0])


def self_described_speaker(text: str, sources: Sequence[Message], others: Collection[str]) -> str:
    """Return the name of another speaker who talks about themselves.

    Blank if there is no such speaker, or if a source turn is the user's.
    """
    if any(turn.role == Message.Role.USER and turn.name not in others for turn in sources):
        return ""
    line, last = SPEAKER.match(text), sources[-1]  # sources are in order, oldest first
    name = last.name or (line[1] if line and last.role == Message.Role.ASSISTANT else "")
    if not name or name == ASSISTANT or (last.name and name not in others):
        return ""
    words = text.removeprefix(f"{name}: ")
    is_own = is_about_speaker(words, language_of(words)) if words != text else text.startswith(name)
    return name if is_own else ""
