"""`user`: what is known about the person: their profile and their stream, as one text.

The order matters, because only a few lines may fit: who the person is, above all their name; then people around them,
work, home and health; last temporary information, for example plans. Lines about who they are, or about what may harm
them, are marked as certain.

Profile and stream are derived from the same conversations, so they often have the same sentences. In this case the
stream's line is used, because it records what this agent noticed, and consolidations keep it up to date.
"""

import re
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from moments_app.context.input import ContextInput
from moments_app.context.item import Item
from moments_app.context.layers import Layer, add_layer
from moments_app.context.layers.streams import fact_item, items_of, pinned_items
from moments_app.engines.extractive.language import ENGLISH, content_words, words
from moments_app.engines.statements import NAME, statement_of, worth_of
from moments_app.engines.tables import word_set
from moments_app.engines.words import ITEM, Line, bare, lines_of, told_words, without_day, without_speaker, words_of
from moments_app.models import MemoryAtom, MemoryStream

_WHO = re.compile(
    r"(?:[\w'’-]+ ){1,3}(?:is|was) (?:an? |from |born )|(?:[^:]{1,40}: )?I(?:['’]m| am| was) (?:an? |from |born )"
)
_NAMED = re.compile(r"(?:The )?[Uu]ser is [A-Z]")  # lines that give the person's name or relationships
PINNED, FIRST = 3.0, 2.0  # more than the rank of any other line
WHO = 0.9
MOST_FACTS_THEN = 100  # in a context of an earlier time
FEW = 3  # words; shorter lines mean little without the heading of their list


def items(source: ContextInput) -> Sequence[Item]:
    """Return the profile's summary, interests and topics, then what the agent has noticed about the person."""
    user = source.user
    noticed = items_of(source, MemoryStream.Type.USER)
    pinned = {item.text for item in pinned_items(source, MemoryStream.Type.USER)}
    lines = [
        *_unsaid(user.summary, [item.text for item in noticed]),
        f"Interests: {', '.join(user.interests)}" if user.interests else "",
        f"Preferred topics: {', '.join(user.preferred_topics)}" if user.preferred_topics else "",
    ]
    profile = [Item(line, ref=user.uri, time=user.updated_at) for line in lines if line]
    ranked = sorted(((_rank(item.text, pinned), item) for item in [*profile, *noticed]), key=lambda ranked: -ranked[0])
    return [item.marked(why=item.why, score=item.score, is_certain=rank >= WHO) for rank, item in ranked]


def _rank(text: str, pinned: Collection[str]) -> float:
    """Return the rank of a line: pinned lines first, then who the person is, then other lines by how long they last."""
    if text in pinned:
        return PINNED
    told = without_day(text).strip()
    statement = statement_of(told)
    if (statement and statement.attribute == NAME) or _NAMED.match(told):
        return FIRST
    return max(worth_of(told), WHO if _WHO.match(told) else 0.0)


def _unsaid(summary: str, noticed: Sequence[str]) -> list[str]:
    """Return the sentences of a profile's summary that no line of the stream repeats."""
    said = [own for text in noticed for own in _said(text)]
    told = [_content(text) for text in noticed]
    lines = [line for line in lines_of(summary) if not _is_said(told_words(line.text), said)]
    return [_alone(line) for line in lines if not _is_told(line.text, told)]


def _is_told(sentence: str, told: Sequence[tuple[AbstractSet[str], AbstractSet[str]]]) -> bool:
    """Return whether a line has all content words of a sentence, and the same negations and marked words.

    A short sentence, or one that sets a value such as a home, never matches: its words may mean something else next to
    other words.
    """
    about, turned = _content(sentence)
    if len(about) < FEW or not any(about <= line and turned == turns for line, turns in told):
        return False
    return statement_of(without_day(sentence.removeprefix(ITEM)).strip()) is None


def _content(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the content words of a line, and the words that change its meaning: negations and marked words (C++)."""
    undated = without_day(text)
    marked = frozenset(word for word in words_of(undated) if word != bare(word))
    return frozenset(content_words(undated, ENGLISH)), (word_set("negations") & frozenset(words(undated))) | marked


def _alone(line: Line) -> str:
    """Return a line that makes sense alone, because previous lines of its list may not fit."""
    text = line.text.removeprefix(ITEM).strip()
    is_sentence = len(words(told_words(text))) > FEW
    return text if is_sentence or not line.heading else f"{line.heading} {text}"


def _is_said(sentence: str, said: Sequence[str]) -> bool:
    """Return whether a line contains a sentence. A sentence of one or two words must be the whole line."""
    return sentence in said or (len(sentence.split()) > 2 and any(sentence in line for line in said))


def _said(line: str) -> set[str]:
    """Return the words of a stream's line, with and without the speaker."""
    undated = without_day(line)
    return {told_words(undated), told_words(without_speaker(undated))}


def items_then(source: ContextInput, as_of: datetime) -> Sequence[Item]:
    """Return the facts about this person that were valid then. Lasting facts come first, in case not all fit."""
    facts = MemoryAtom.objects.as_of(as_of).filter(user=source.user).facts()
    lasting = facts.order_by("-worth", "-formed_at", "-id")[:MOST_FACTS_THEN]
    zone = source.user.zone
    return [fact_item(fact, zone) for fact in sorted(lasting, key=lambda fact: (fact.formed_at, fact.pk))]


add_layer(
    Layer(
        "user",
        items,
        place=20,
        tag="UserMemory",
        title="The user",
        ceiling=0.15,
        turn=1,
        is_static=True,
        items_then=items_then,
    )
)
