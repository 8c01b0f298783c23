"""The layers `user`, `collective` and `conversation`, which contain the items of streams.

The items of a stream are its facts, pinned items, text, and unmerged observations.

A shard starts with this person's own statements, which no other person's context includes.

Each line of a text is a separate item, so that a context may end after any line. Duplicate lines are included only
once. For example, the text may already contain a pending correction. Unmerged observations are shown with a date
instead of an age, so that the text doesn't change from day to day.

`user` contains the person's profile and stream, as one text. Because only a few lines may fit, they are sorted: first
who the person is, above all their name; then people around them, work, home and health; finally temporary information,
such as plans. Lines about who they are, or about what may harm them, have `is_certain` set. Profile and stream are
derived from the same conversations, so they often have the same sentences. In this case, the stream's line is used,
because it is from this agent and is updated by consolidations.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from zoneinfo import ZoneInfo

from moments_app.context.input import ContextInput, Item
from moments_app.context.layers import Layer, add_layer
from moments_app.engines.extractive.language import ENGLISH, content_words, words
from moments_app.engines.statements import NAME, statement_of, worth_of
from moments_app.engines.statements.dates import plan_text
from moments_app.engines.words import (
    LIST_MARK,
    Line,
    memory_lines,
    undated_words,
    without_dates,
    without_marks,
    without_speaker,
    word_set,
    words_of,
)
from moments_app.models import MemoryAtom, MemoryStream


def collective(source: ContextInput) -> Sequence[Item]:
    """Return lessons and other knowledge from the active shards of this agent and of all agents.

    The result contains this person's own items, and released items from other people, without duplicates.
    """
    found = items_of(source, MemoryStream.Type.AGENT)
    return list({(item.name, item.text): item for item in reversed(found)}.values())[::-1]


def conversation(source: ContextInput) -> Sequence[Item]:
    return items_of(source, MemoryStream.Type.SESSION)


def items_of(source: ContextInput, stream_type: str) -> list[Item]:
    """Return the items of all streams of a type. Items with the same words are included once."""
    of_type = (found for found in source.streams if found[0].stream_type == stream_type)
    items = (item for stream, atoms in of_type for item in _items(stream, atoms, source.user.zone))
    by_words: dict[tuple[str, str], Item] = {}
    for item in items:
        by_words.setdefault((item.name, item.statement_words.strip() or item.text), item)
    return list(by_words.values())


def pinned_items(source: ContextInput, stream_type: str) -> list[Item]:
    of_type = (stream for stream, _ in source.streams if stream.stream_type == stream_type)
    return [item for stream in of_type for item in _lines(stream, stream.pinned_content)]


def _items(stream: MemoryStream, atoms: list[MemoryAtom], zone: ZoneInfo) -> Iterator[Item]:
    own = [atom for atom in atoms if not atom.is_candidate]
    yield from (fact_item(atom, zone, stream.name) for atom in atoms if atom.is_candidate)
    yield from (fact_item(atom, zone, stream.name) for atom in own if atom.atom_type == MemoryAtom.Type.FACT)
    yield from _lines(stream, stream.pinned_content)
    yield from _lines(stream, stream.consolidated_content)
    yield from (fact_item(atom, zone, stream.name) for atom in own if atom.atom_type == MemoryAtom.Type.OBSERVATION)


def _lines(stream: MemoryStream, text: str) -> Iterator[Item]:
    for line in text.split("\n"):
        if line.strip():
            said = line.strip().removeprefix("- ")  # a context adds its own list marks
            yield Item(said, ref=stream.uri, time=stream.last_updated_at, name=stream.name)


def fact_item(atom: MemoryAtom, zone: ZoneInfo, name: str = "") -> Item:
    """Return a fact or observation as an item, with its day or planned day in the person's time zone."""
    planned = plan_text(atom.content, atom.formed_at, zone) if atom.is_planned else ""
    day = f"{atom.formed_at.astimezone(zone):%Y-%m-%d}"
    return Item(f"{atom.content} ({planned or day})", ref=atom.uri, time=atom.formed_at, name=name)


add_layer(
    Layer(
        "collective",
        collective,
        place=10,
        tag="CollectiveMemory",
        title="Collective memory",
        ceiling=0.10,
        turn=4,
        is_static=True,
    )
)
add_layer(
    Layer(
        "conversation",
        conversation,
        place=50,
        tag="ConversationFacts",
        title="Facts of this conversation",
        ceiling=0.10,
        turn=6,
        is_static=True,
    )
)


# --- the person ---

_IDENTITY = re.compile(
    r"(?:[\w'’-]+ ){1,3}(?:is|was) (?:an? |from |born )|(?:[^:]{1,40}: )?I(?:['’]m| am| was) (?:an? |from |born )"
)
_NAMED = re.compile(r"(?:The )?[Uu]ser is [A-Z]")  # lines that give the person's name or relationships
PINNED_RANK, NAME_RANK = 3.0, 2.0  # higher than the ranks of all other lines
IDENTITY_RANK = 0.9
MAX_PAST_FACTS = 100  # maximum facts in a context as of an earlier time
FEW_WORDS = 3  # lines with at most this many words are unclear without the heading of their list


def user(source: ContextInput) -> Sequence[Item]:
    """Return the profile's summary, interests and topics, then what the agent has noticed about the person."""
    person = source.user
    noticed = items_of(source, MemoryStream.Type.USER)
    pinned = {item.text for item in pinned_items(source, MemoryStream.Type.USER)}
    lines = [
        *_new_sentences(person.summary, [item.text for item in noticed]),
        f"Interests: {', '.join(person.interests)}" if person.interests else "",
        f"Preferred topics: {', '.join(person.preferred_topics)}" if person.preferred_topics else "",
    ]
    profile = [Item(line, ref=person.uri, time=person.updated_at) for line in lines if line]
    ranked = sorted(((_rank(item.text, pinned), item) for item in [*profile, *noticed]), key=lambda ranked: -ranked[0])
    return [item.marked(why=item.why, score=item.score, is_certain=rank >= IDENTITY_RANK) for rank, item in ranked]


def _rank(text: str, pinned: Collection[str]) -> float:
    """Return the rank of a line: pinned lines first, then who the person is, then lasting information."""
    if text in pinned:
        return PINNED_RANK
    told = without_dates(text).strip()
    statement = statement_of(told)
    if (statement and statement.attribute == NAME) or _NAMED.match(told):
        return NAME_RANK
    return max(worth_of(told), IDENTITY_RANK if _IDENTITY.match(told) else 0.0)


def _new_sentences(summary: str, noticed: Sequence[str]) -> list[str]:
    """Return the sentences of a profile's summary that no line of the stream repeats."""
    said = [own for text in noticed for own in _word_variants(text)]
    told = [_content(text) for text in noticed]
    lines = [line for line in memory_lines(summary) if not _is_contained_in(undated_words(line.text), said)]
    return [_standalone(line) for line in lines if not _is_covered_by(line.text, told)]


def _is_covered_by(sentence: str, told: Sequence[tuple[AbstractSet[str], AbstractSet[str]]]) -> bool:
    """Return whether a line has all content words of a sentence, and the same negations and marked words.

    Short sentences, and sentences that set an attribute such as the home, never match, because within a longer line
    their words may have another meaning.
    """
    about, turned = _content(sentence)
    if len(about) < FEW_WORDS or not any(about <= line and turned == turns for line, turns in told):
        return False
    return statement_of(without_dates(sentence.removeprefix(LIST_MARK)).strip()) is None


def _content(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the content words of a line, and the words that change its meaning: negations and marked words (C++)."""
    undated = without_dates(text)
    marked = frozenset(word for word in words_of(undated) if word != without_marks(word))
    return frozenset(content_words(undated, ENGLISH)), (word_set("negations") & frozenset(words(undated))) | marked


def _standalone(line: Line) -> str:
    """Return the text of a line, with the heading of its list if the line is too short to be clear without it."""
    text = line.text.removeprefix(LIST_MARK).strip()
    is_sentence = len(words(undated_words(text))) > FEW_WORDS
    return text if is_sentence or not line.heading else f"{line.heading} {text}"


def _is_contained_in(sentence: str, said: Sequence[str]) -> bool:
    """Return whether a line contains the sentence. A sentence of one or two words must be the whole line."""
    return sentence in said or (len(sentence.split()) > 2 and any(sentence in line for line in said))


def _word_variants(line: str) -> set[str]:
    """Return the words of a stream's line in two variants: with and without the speaker."""
    undated = without_dates(line)
    return {undated_words(undated), undated_words(without_speaker(undated))}


def user_as_of(source: ContextInput, as_of: datetime) -> Sequence[Item]:
    """Return at most `MAX_PAST_FACTS` facts about the person that were valid at a time, oldest first.

    If there are more, prefer lasting facts.
    """
    facts = MemoryAtom.objects.as_of(as_of).filter(user=source.user).facts()
    lasting = facts.order_by("-worth", "-formed_at", "-id")[:MAX_PAST_FACTS]
    zone = source.user.zone
    return [fact_item(fact, zone) for fact in sorted(lasting, key=lambda fact: (fact.formed_at, fact.pk))]


add_layer(
    Layer(
        "user",
        user,
        place=20,
        tag="UserMemory",
        title="The user",
        ceiling=0.15,
        turn=1,
        is_static=True,
        items_as_of=user_as_of,
    )
)
