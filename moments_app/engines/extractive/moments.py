"""Moments: a window divided by pauses and vocabulary, each part with summary, detail and tags."""

import math
import re
from collections import Counter
from collections.abc import Sequence

from moments_app.engines.calls.moments import DraftMoment, MomentAnswer, MomentRequest
from moments_app.engines.extractive.journey import journey_text
from moments_app.engines.extractive.language import feelings, keyphrases, words
from moments_app.engines.extractive.profile import new_interests, new_topics, profile_text
from moments_app.engines.extractive.segments import segment
from moments_app.engines.extractive.sentences import ROLE_WEIGHT, Sentence, Window, dated, fallback, read, telling

SUMMARY_SENTENCES = 3
SUMMARY_MAX = 420  # characters
DETAIL_WORDS = 280  # of the 300 that a detail may have; dates come on top
DETAIL_SHARE = 0.5  # of the segment's words: less would lose facts, more would be the transcript again

_ASIDE = re.compile(r"\[[^\[\]]{1,300}\]")  # "[shares a photo of …]" is no subject of the conversation
_NAME = re.compile(
    r"\b(?:[Mm]y|[Oo]ur|[Hh]is|[Hh]er|[Tt]heir) (?:\w+ )?(?:wife|husband|partner|daughter|son|brother|sister|mother|"
    r"father|mom|mum|dad|friend|boss|colleague|neighbour|neighbour|cousin|aunt|uncle|doctor|teacher|coach),? "
    r"([A-Z][a-zà-öø-ÿ]+(?:-[A-Z][a-zà-öø-ÿ]+)?)\b|\b(?:named|called|I'm|I am|name is) ([A-Z][a-zà-öø-ÿ]{2,})\b"
)
_CAPITALISED = re.compile(
    r"(?<=[a-zà-öø-ÿ,;] )([A-Z][a-zà-öø-ÿ]{2,})(?='s\b| (?:said|says|told|asked|wants|thinks|called)\b)"
)
_NO_NAMES = frozenset(
    (
        "Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June July "
        "August September October November December Just Not Very Really So Still Going Glad Sorry Happy Good "
        "Fine Sure"
    ).split()
)


def build_moments(request: MomentRequest) -> MomentAnswer:
    """Divide the window and write its moments; never fails."""
    window = read(request.turns)
    moments: list[DraftMoment] = []
    names = {moment.name for moment in request.journey.moments}
    for part in segment(request.turns, window.vocabulary):
        moment = _moment(window, part, names)
        names.add(moment.name)
        moments.append(moment)
    return MomentAnswer(
        moments=moments,
        user_summary_update=profile_text(request.profile, window.sentences),
        new_interests=new_interests(request.profile, window.sentences),
        new_preferred_topics=new_topics(request.profile, moments),
        recent_journey=journey_text(request, moments),
    )


def _moment(window: Window, part: range, taken: set[str]) -> DraftMoment:
    own = [sentence for position in part for sentence in window.by_turn[position]]
    spoken = [sentence for sentence in own if sentence.turn.role != "tool"] or own
    text = _ASIDE.sub(" ", ". ".join(sentence.text for sentence in spoken))
    speakers = {word for sentence in own for word in words(sentence.speaker)}
    tags = keyphrases(text, window.language, 8, without=speakers) if text else []
    return DraftMoment(
        name=_name(tags, taken),
        summary=_summary(spoken, window.weights) or fallback(window.turns[part.start]),
        detail=_detail(own, window.weights),
        topic_tags=tags,
        emotion_tags=feelings([sentence.text for sentence in spoken if sentence.turn.role == "user"]),
        present_persons=_persons(own),
        starts_at_message_idx=window.turns[part.start].index,
        ends_at_message_idx=window.turns[part.stop - 1].index,
    )


def _name(tags: Sequence[str], taken: set[str]) -> str:
    """Return two or three of the strongest phrases; others where that name is taken."""
    parts = ["-".join(words(tag)) for tag in tags] or ["conversation"]
    names = ["-".join(parts[:2]), "-".join(parts[:3]), "-".join(parts[1:3]), "-".join(parts[2:5])]
    return next((name for name in names if name and name not in taken), names[0])[:80]


def _summary(own: Sequence[Sentence], weights: dict[str, float]) -> str:
    """Return the sentences nearest to the segment's centroid (Radev et al. 2004), unlike each other, in order."""
    centroid = Counter[str]()
    for sentence in own:
        centroid.update({term: weights.get(term, 0.0) for term in sentence.terms})
    ranked = sorted(range(len(own)), key=lambda n: (-_centrality(own[n], centroid, weights), n))
    chosen: list[int] = []
    length = 0
    for n in ranked:
        size = len(own[n].spoken) + 1
        alike = any(len(own[n].terms & own[m].terms) > len(own[n].terms) / 2 for m in chosen)
        if own[n].terms and not alike and length + size <= SUMMARY_MAX:
            chosen.append(n)
            length += size
        if len(chosen) == SUMMARY_SENTENCES:
            break
    return " ".join(own[n].spoken for n in sorted(chosen))


def _centrality(sentence: Sentence, centroid: Counter[str], weights: dict[str, float]) -> float:
    norm = math.sqrt(math.fsum(weights.get(term, 0.0) ** 2 for term in sentence.terms)) or 1.0
    closeness = math.fsum(centroid[term] * weights.get(term, 0.0) for term in sentence.terms) / norm
    question = 0.4 if sentence.text.rstrip().endswith(("?", "？")) else 1.0
    short = 0.5 if len(sentence.terms) < 3 else 1.0
    return closeness * question * short * ROLE_WEIGHT[sentence.turn.role]


def _detail(own: Sequence[Sentence], weights: dict[str, float]) -> str:
    """Return the same in about half the words, with its dates."""
    words_said = sum(len(sentence.text.split()) for sentence in own)
    return dated(telling(own, weights, min(DETAIL_WORDS, 20 + round(DETAIL_SHARE * words_said))))


def _persons(own: Sequence[Sentence]) -> list[str]:
    """Return who speaks under a name, and who is spoken about by name."""
    counts = Counter[str]()
    for sentence in own:
        if sentence.speaker not in ("User", "Assistant") and sentence.turn.role != "tool":
            counts[sentence.speaker] += 1
        names = [name for match in _NAME.findall(sentence.text) for name in match if name]
        counts.update(name for name in names + _CAPITALISED.findall(sentence.text) if name not in _NO_NAMES)
    return [name for name, _ in counts.most_common(12)]
