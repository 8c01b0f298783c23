"""Group the sessions that a search found: each source, and the sessions that repeat its words.

The source is the person's earliest turn, or the earliest turn of others if the person has none. Later, the person, or a
model that remembers the source, may repeat its words. All of these turns contain the query's words, so their other
words decide whether they are similar. The words alone can't tell a repetition from its opposite: "I am not allergic to
nuts" has all words of "I am allergic to nuts".
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from moments_app.turns.same import sentences_of
from sessions_app import lexemes
from sessions_app.models import Message, Session
from sessions_app.transcript.search import Mention

Words = Sequence[lexemes.QueryWord]
Statement = AbstractSet[str] | None  # the stems of its words, without the query's; None if the text is archived


def with_similar(sessions: Sequence[Session], said: Mapping[int, Mention | None], words: Words) -> list[list[Session]]:
    """Return the sessions in groups. The first session of a group is the source, and the others have similar words.

    Groups are sorted by their first session in `sessions`. Within a group, turns of the person come before turns of
    others, both sorted by time.

    Args:
        said: the turn that was found in each session.
        words: the words of the query.
    """
    by_person: dict[int, list[Session]] = defaultdict(list)
    for session in sessions:
        by_person[session.user_id].append(session)
    places = {session: place for place, session in enumerate(sessions)}
    groups = [group for own in by_person.values() for group in _groups(own, said, words)]
    return sorted(groups, key=lambda group: min(places[session] for session in group))


def _groups(sessions: Sequence[Session], said: Mapping[int, Mention | None], words: Words) -> Iterator[list[Session]]:
    turns = {session: turn for session in sessions if (turn := said.get(session.pk))}
    sources: list[tuple[Statement, list[Session]]] = []
    for session, statement in _statements(turns, words):
        group = next((group for source, group in sources if _is_similar(statement, source)), None)
        if group is None:
            sources.append((statement, [session]))
        else:
            group.append(session)
    yield from (group for _, group in sources)
    yield from ([session] for session in sessions if session not in turns)


def _statements(turns: Mapping[Session, Mention], words: Words) -> Iterator[tuple[Session, Statement]]:
    """Yield each session with its statement: the person's turns first, then those of others, both sorted by time."""
    texts = {session: _matching_sentences(turn.content, words) for session, turn in turns.items()}
    languages = lexemes.languages_of(texts.values())
    asked = {stem for word in words for stem in word.stems}
    for session in sorted(turns, key=lambda one: (turns[one].role != Message.Role.USER, turns[one].time)):
        text = texts[session]
        yield session, lexemes.stems_in(text, languages) - asked if text else None


def _is_similar(later: Statement, source: Statement) -> bool:
    """Return whether a statement has all words of a source."""
    if later is None or source is None:
        return False
    return later >= source if source else not later


def _matching_sentences(text: str, words: Words) -> str:
    places = [start for start, _ in lexemes.places_of(text, words)]
    found, end = [], 0
    for sentence in sentences_of(text):
        start = text.index(sentence, end)
        end = start + len(sentence)
        if any(start <= place < end for place in places):
            found.append(sentence)
    return " ".join(found)
