"""The engine that needs no model: what it writes are sentences of the conversation itself, well chosen.

It divides by pauses and vocabulary (`segments.py`), takes the most central sentences as summary and those that tell
the most new things as detail, and keyphrases as tags. It is deterministic. It can't rephrase, conclude or resolve a
contradiction; see docs/engines.md.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from moments_app.engines.base import (
    ConsolidationAnswer,
    ConsolidationRequest,
    DigestAnswer,
    DigestRequest,
    DraftAtom,
    DraftAtoms,
    DraftLine,
    DraftMoment,
    Fact,
    FormationAnswer,
    FormationRequest,
    KnownMoment,
    Limits,
    MomentAnswer,
    MomentRequest,
    Profile,
    QueryAnswer,
    QueryRequest,
    StreamSection,
    SummaryAnswer,
    SummaryRequest,
    Turn,
)
from moments_app.engines.language import content_words, feelings, keyphrases, language_of, sentences, words
from moments_app.engines.segments import segment

SUMMARY_SENTENCES = 3
SUMMARY_MAX = 420  # characters
DETAIL_WORDS = 280  # of the 300 that a detail may have; dates come on top
ROLLING_WORDS_PER_TURN = 16  # of a rolling summary: of 14 turns about 220
DETAIL_SHARE = 0.5  # of the segment's words: less would lose facts, more would be the transcript again
PROFILE_MAX = 2_000  # characters
PROFILE_LINE_WORDS = (4, 40)
JOURNEY_MAX = 700  # characters
JOURNEY_STEP_MAX = 80  # of what is said of one moment
STATEMENT_START = 32  # characters
ROLE_WEIGHT = {"user": 1.0, "assistant": 0.75, "tool": 0.3}

# "Maria: Hey John!" as a transcript of two people has it.
_SPEAKER = re.compile(r"^([^\W\d_][\w'’.-]{1,30}(?: [^\W\d_][\w'’.-]{1,30})?):\s+(?=\S)")
_ASIDE = re.compile(r"\[[^\[\]]{1,300}\]")  # "[shares a photo of …]" is no subject of the conversation
_NAME = re.compile(
    r"\b(?:[Mm]y|[Oo]ur|[Hh]is|[Hh]er|[Tt]heir) (?:\w+ )?(?:wife|husband|partner|daughter|son|brother|sister|mother|"
    r"father|mom|mum|dad|friend|boss|colleague|neighbour|neighbor|cousin|aunt|uncle|doctor|teacher|coach),? "
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
_PLAN = re.compile(
    r"\b(will|going to|plan|need to|have to|decided|booked|ordered|moved|deadline|appointment|due)\b", re.I
)
_ABOUT_ME = re.compile(
    r"\bI(?:'m| am| was)? (?:a|an|the|from|allergic|born|married|single|vegan|vegetarian|working|training|learning)\b|"
    r"\bI (?:live|work|study|teach|run|own|have|love|like|prefer|hate|enjoy|always|never|moved|speak|play)\b|"
    r"\b[Mm]y (?:name|wife|husband|partner|daughter|son|kids|children|brother|sister|mother|father|mom|mum|dad|dog|cat|"
    r"job|birthday|favourite|favorite|dream|goal)\b|\b(?:[Ii]ch (?:bin|habe|wohne|arbeite|mag|liebe)|[Mm]eine? )\b"
)
_INTEREST = re.compile(
    r"\bI(?:'m| am)? (?:really |also |just |so )?(?:love|like|enjoy|into|learning|passionate about|interested in|"
    r"keen on) (?:to )?((?:[\w'-]+ ?){1,3})"
)
# What somebody says an assistant should do, in sentences that name nobody and no particular thing.
_LESSON = re.compile(
    r"^(?:(?:please|next time|from now on|in future|in the future|and|so|ok|okay),? )*"
    r"(?:always|never|don't|do not|stop|avoid|make sure|remember to|be sure to)\b",
    re.I,
)
_PERSONAL = re.compile(
    r"\b(?:I|I'm|I'd|I'll|I've|me|my|mine|we|us|our|he|him|his|she|her|they|them|their)\b|\d|@", re.I
)
_SENTENCE_END = re.compile(r"(?<=[.!?]) |(?<=[。！？])(?=.)")
_DANGLING = frozenset(
    ("a an the to and or of in on at for with about it that this so but my your them you how when").split()
)


@dataclass(frozen=True)
class Sentence:
    """A sentence with what the choices are made by.

    Args:
        turn: it stands in.
        text: of it, without the speaker's name.
        terms: its content words.
        speaker: who says it.
    """

    turn: Turn
    text: str
    terms: frozenset[str]
    speaker: str

    @property
    def spoken(self) -> str:
        return f"{self.speaker}: {self.text}"


class ExtractiveEngine:
    """See the module's text."""

    name = "extractive"

    def build_moments(self, request: MomentRequest) -> MomentAnswer:
        """Divides the window and writes its moments; never fails."""
        language = language_of(turn.content for turn in request.turns)
        texts = _by_speaker(request.turns)
        vocabulary = [content_words(text[:20_000], language) for _, text in texts]
        weights = _weights(vocabulary)
        found = [_sentences(turn, *texts[n], language) for n, turn in enumerate(request.turns)]
        moments: list[DraftMoment] = []
        names = {moment.name for moment in request.journey.moments}
        for part in segment(request.turns, vocabulary):
            moment = _moment(request.turns, part, found, weights, language, names)
            names.add(moment.name)
            moments.append(moment)
        everything = [sentence for group in found for sentence in group]
        return MomentAnswer(
            moments=moments,
            user_summary_update=_profile_text(request.profile, everything),
            new_interests=_interests(request.profile, everything),
            new_preferred_topics=_topics(request.profile, moments),
            recent_journey=_journey(request, moments),
        )

    def roll_summary(self, request: SummaryRequest) -> SummaryAnswer:
        """Keeps the facts that still lie in the window and adds the most telling sentences of the new turns."""
        language = language_of(turn.content for turn in request.turns)
        texts = _by_speaker(request.turns)
        found = [_sentences(turn, *texts[n], language) for n, turn in enumerate(request.turns)]
        own = [sentence for group in found for sentence in group]
        weights = _weights([content_words(text[:20_000], language) for _, text in texts])
        new = _telling(own, weights, ROLLING_WORDS_PER_TURN * len(request.turns))
        kept = [fact for fact in request.base_facts if min(fact.message_indexes, default=-1) >= request.start]
        facts = kept + [Fact(fact=_dated([sentence]), message_indexes=[sentence.turn.index]) for sentence in new]
        text = _under_dates(fact.fact for fact in facts) or _fallback(request.turns[0])
        return SummaryAnswer(summary_text=text[:6_000], facts=facts[-100:])

    def form_memories(self, request: FormationRequest) -> FormationAnswer:
        """What the person says of themselves as observations, the most telling sentences as facts."""
        language = language_of(turn.content for turn in request.turns)
        texts = _by_speaker(request.turns)
        own = [
            sentence
            for n, turn in enumerate(request.turns)
            for sentence in _sentences(turn, *texts[n], language)
            if turn.role != "tool"
        ]
        weights = _weights([content_words(text[:20_000], language) for _, text in texts])
        entries = [_entry(section, own, weights, language) for section in request.sections]
        return FormationAnswer(streams=[entry.model_dump() for entry in entries])

    def digest(self, request: DigestRequest) -> DigestAnswer:
        """What is known from before and the most telling sentences of the turns; lessons as the person put them."""
        language = language_of(turn.content for turn in request.turns)
        texts = _by_speaker(request.turns)
        own = [sentence for n, turn in enumerate(request.turns) for sentence in _sentences(turn, *texts[n], language)]
        weights = _weights([content_words(text[:20_000], language) for _, text in texts])
        new = _dated(_telling(own, weights, request.max_words * 3 // 4)) or _fallback(request.turns[-1])
        lines = [line for line in request.context.split("\n") if line.strip()] + new.split("\n")
        while len(lines) > 1 and sum(len(line.split()) for line in lines) > request.max_words:
            lines.pop(0)
        lessons = [sentence.text for sentence in own if _is_lesson(sentence)]
        return DigestAnswer(context="\n".join(lines)[:8_000], lessons=list(dict.fromkeys(lessons))[:5])

    def recall_query(self, request: QueryRequest) -> QueryAnswer:
        """The message itself: its rarest words find best."""
        return QueryAnswer(query=request.message[:1_000])

    def consolidate(self, request: ConsolidationRequest) -> ConsolidationAnswer:
        """The lines so far and the observations, each a line unless one says it already."""
        lines = [DraftLine(text=line.text, carries=[line.label]) for line in request.lines]
        for observation in request.observations:
            line = next((line for line in lines if _says(line.text, observation.text)), None)
            if line is None:
                lines.append(DraftLine(text=f"- {observation.text}", carries=[observation.label]))
            else:
                line.carries.append(observation.label)
        return ConsolidationAnswer(lines=lines)


def _entry(section: StreamSection, own: Sequence[Sentence], weights: dict[str, float], language: str) -> DraftAtoms:
    """What one stream gets; a shard what shares words with its prompt, never what a person says of themselves."""
    fitting = own
    if section.label.startswith("shard "):
        wanted = set(content_words(section.prompt, language))
        fitting = [sentence for sentence in own if len(sentence.terms & wanted) >= 2 and not _is_statement(sentence)]
    observations = [sentence for sentence in fitting if section.label != "user" or _is_statement(sentence)]
    return DraftAtoms(
        stream=section.label,
        observations=_drafts(observations, weights, section.observations, section.current),
        facts=_drafts(fitting, weights, section.facts, section.current),
    )


def _drafts(own: Sequence[Sentence], weights: dict[str, float], limits: Limits | None, current: str) -> list[DraftAtom]:
    if limits is None or not limits.most:
        return []
    short = [one for one in own if 3 <= len(one.text.split()) <= limits.words and not one.text.rstrip().endswith("?")]
    new = [one for one in short if not _says(current, one.text)]
    best = sorted(new, key=lambda one: -_gain(one, set(), weights))[: limits.most]
    return [DraftAtom(text=one.spoken, message_indexes=[one.turn.index]) for one in new if one in best]


def _says(text: str, part: str) -> bool:
    """Whether a text holds nearly all words of another."""
    own = set(words(part))
    return bool(own) and len(own & set(words(text))) >= 0.9 * len(own)


def _by_speaker(turns: Sequence[Turn]) -> list[tuple[str, str]]:
    """Who speaks in each turn, and its text without the name in front, where the transcript has names in front."""
    matches = [_SPEAKER.match(turn.content) if turn.role != "tool" else None for turn in turns]
    named = sum(map(bool, matches)) > len(turns) / 2
    return [
        (match[1], turn.content[match.end() :]) if match and named else (_role_name(turn), turn.content)
        for turn, match in zip(turns, matches, strict=True)
    ]


def _role_name(turn: Turn) -> str:
    return {"user": "User", "assistant": "Assistant"}.get(turn.role, turn.tool_name or "Tool")


def _sentences(turn: Turn, speaker: str, text: str, language: str) -> list[Sentence]:
    return [
        Sentence(turn, sentence, frozenset(content_words(sentence, language)), speaker)
        for sentence in sentences(text, language)
    ]


def _weights(vocabulary: Sequence[Sequence[str]]) -> dict[str, float]:
    """Inverse document frequency of each word over the turns of the window, smoothed."""
    count = len(vocabulary)
    frequency = Counter(word for turn in vocabulary for word in set(turn))
    return {word: math.log((1 + count) / (1 + n)) + 1 for word, n in frequency.items()}


def _moment(
    turns: Sequence[Turn],
    part: range,
    found: Sequence[Sequence[Sentence]],
    weights: dict[str, float],
    language: str,
    taken: set[str],
) -> DraftMoment:
    own = [sentence for n in part for sentence in found[n]]
    spoken = [sentence for sentence in own if sentence.turn.role != "tool"] or own
    text = _ASIDE.sub(" ", ". ".join(sentence.text for sentence in spoken))
    speakers = {word for sentence in own for word in words(sentence.speaker)}
    tags = keyphrases(text, language, 8, without=speakers) if text else []
    return DraftMoment(
        name=_name(tags, taken),
        summary=_summary(spoken, weights) or _fallback(turns[part.start]),
        detail=_detail(own, weights),
        topic_tags=tags,
        emotion_tags=feelings([sentence.text for sentence in spoken if sentence.turn.role == "user"]),
        present_persons=_persons(own),
        starts_at_message_idx=turns[part.start].index,
        ends_at_message_idx=turns[part.stop - 1].index,
    )


def _name(tags: Sequence[str], taken: set[str]) -> str:
    """Two or three of the strongest phrases; another one where that name is taken."""
    parts = ["-".join(words(tag)) for tag in tags] or ["conversation"]
    names = ["-".join(parts[:2]), "-".join(parts[:3]), "-".join(parts[1:3]), "-".join(parts[2:5])]
    return next((name for name in names if name and name not in taken), names[0])[:80]


def _fallback(turn: Turn) -> str:
    """A summary of turns without a sentence: what stands at their beginning."""
    return " ".join(turn.content[:200].split()) or "Turns without text."


def _summary(own: Sequence[Sentence], weights: dict[str, float]) -> str:
    """The sentences nearest to the segment's centroid (Radev et al. 2004), unlike each other, in order."""
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
    norm = math.sqrt(sum(weights.get(term, 0.0) ** 2 for term in sentence.terms)) or 1.0
    closeness = sum(centroid[term] * weights.get(term, 0.0) for term in sentence.terms) / norm
    question = 0.4 if sentence.text.rstrip().endswith(("?", "？")) else 1.0
    short = 0.5 if len(sentence.terms) < 3 else 1.0
    return closeness * question * short * ROLE_WEIGHT[sentence.turn.role]


def _detail(own: Sequence[Sentence], weights: dict[str, float]) -> str:
    """What is told in about half the words, with its dates."""
    words_said = sum(len(sentence.text.split()) for sentence in own)
    return _dated(_telling(own, weights, min(DETAIL_WORDS, 20 + round(DETAIL_SHARE * words_said))))


def _telling(own: Sequence[Sentence], weights: dict[str, float], left: int) -> list[Sentence]:
    """Greedily the sentences that tell most that is new for their length, up to so many words, in order.

    Budgeted coverage as in Lin & Bilmes 2011 (https://aclanthology.org/P11-1052): the gain of a sentence is the weight
    of its words that no chosen one has.
    """
    told: set[str] = set()
    chosen: list[int] = []
    waiting = {n for n, sentence in enumerate(own) if sentence.terms}
    while waiting and left > 0:
        best = max(sorted(waiting), key=lambda n: _gain(own[n], told, weights))
        waiting.discard(best)
        cost = len(own[best].text.split()) + 1
        if _gain(own[best], told, weights) > 0 and cost <= left:
            chosen.append(best)
            told |= own[best].terms
            left -= cost
    return [own[n] for n in sorted(chosen)]


def _gain(sentence: Sentence, told: set[str], weights: dict[str, float]) -> float:
    new = sum(weights.get(term, 0.0) for term in sentence.terms - told)
    plan = 1.2 if _PLAN.search(sentence.text) or re.search(r"\d", sentence.text) else 1.0
    question = 0.3 if sentence.text.rstrip().endswith("?") else 1.0
    return new * plan * question * ROLE_WEIGHT[sentence.turn.role] / (len(sentence.text.split()) + 3)


def _dated(chosen: Iterable[Sentence]) -> str:
    """Lines of speech, each under its date: "yesterday" means nothing without."""
    lines: list[str] = []
    date = speaker = ""
    for sentence in chosen:
        day = f"[{sentence.turn.created_at:%Y-%m-%d}]"
        if day != date:
            lines.append(f"{day} {sentence.spoken}")
        elif sentence.speaker != speaker:
            lines.append(sentence.spoken)
        else:
            lines[-1] += f" {sentence.text}"
        date, speaker = day, sentence.speaker
    return "\n".join(lines)[:6_000]


def _under_dates(facts: Iterable[str]) -> str:
    """The facts, a line each, their date only where it changes."""
    lines: list[str] = []
    date = ""
    for fact in facts:
        day, _, rest = fact.partition("] ")
        lines.append(rest if day == date and rest else fact)
        date = day
    return "\n".join(lines)


def _persons(own: Sequence[Sentence]) -> list[str]:
    """Who speaks under a name, and who is spoken of by one."""
    counts = Counter[str]()
    for sentence in own:
        if sentence.speaker not in ("User", "Assistant") and sentence.turn.role != "tool":
            counts[sentence.speaker] += 1
        names = [name for match in _NAME.findall(sentence.text) for name in match if name]
        counts.update(name for name in names + _CAPITALISED.findall(sentence.text) if name not in _NO_NAMES)
    return [name for name, _ in counts.most_common(12)]


def _profile_text(profile: Profile, everything: Sequence[Sentence]) -> str:
    """The profile so far and what the person newly says of themselves, a line a statement.

    The first paragraph stays: it may be an operator's. Beyond the limit the oldest lines after it are dropped.
    """
    head, _, rest = profile.summary.partition("\n")
    lines = [line for line in rest.split("\n") if line.strip()]
    for sentence in everything:
        if _is_statement(sentence) and not _is_known(sentence, [head, *lines]):
            lines.append(f"- {sentence.text} ({sentence.turn.created_at:%Y-%m-%d})")
    if not head and lines:
        head = "In the person's own words:"
    while lines and len(head) + sum(len(line) + 1 for line in lines) > PROFILE_MAX:
        lines.pop(0)
    return "\n".join([head, *lines]).strip()[:8_000]


def _is_statement(sentence: Sentence) -> bool:
    least, most = PROFILE_LINE_WORDS
    return (
        sentence.turn.role == "user"
        and least <= len(sentence.text.split()) <= most
        and len(sentence.terms) >= 2
        and not sentence.text.rstrip().endswith("?")
        # At its beginning: "You sound like my mother" says nothing of her.
        and bool(_ABOUT_ME.search(sentence.text[:STATEMENT_START]))
    )


def _is_lesson(sentence: Sentence) -> bool:
    """Whether a person tells the assistant how to work, in words that hold for anybody: lessons are everybody's."""
    least, most = PROFILE_LINE_WORDS
    return (
        sentence.turn.role == "user"
        and least <= len(sentence.text.split()) <= most
        and bool(_LESSON.search(sentence.text))
        and not _PERSONAL.search(sentence.text)
        and not re.search(r"(?<=\s)[A-Z][a-z]", sentence.text)  # a name
    )


def _is_known(sentence: Sentence, lines: Iterable[str]) -> bool:
    """Whether a line says nearly all of it already."""
    own = set(words(sentence.text))
    return any(len(own & set(words(line))) >= 0.7 * len(own) for line in lines)


def _interests(profile: Profile, everything: Iterable[Sentence]) -> list[str]:
    known = {interest.casefold() for interest in profile.interests}
    found: dict[str, str] = {}
    for sentence in everything:
        for match in _INTEREST.findall(sentence.text) if sentence.turn.role == "user" else ():
            phrase = words(match)
            while phrase and phrase[-1] in _DANGLING:
                phrase.pop()
            text = " ".join(phrase)
            if len(text) > 3 and phrase[0] not in _DANGLING and text not in known:
                found.setdefault(text, text)
    return list(found)[:10]


def _topics(profile: Profile, moments: Sequence[DraftMoment]) -> list[str]:
    known = {topic.casefold() for topic in profile.preferred_topics}
    counts = Counter(tag for moment in moments for tag in moment.topic_tags[:4])
    return [tag for tag, _ in counts.most_common() if tag not in known][:5]


def _journey(request: MomentRequest, moments: Sequence[DraftMoment]) -> str:
    """Since when, how many moments, and a dated line of each of the latest; of too many the oldest drop out."""
    way = request.journey.then("", [_known(request.turns, moment) for moment in moments])
    first, last = (f"{time:%Y-%m-%d}" for time in (way.since or request.turns[0].created_at, way.moments[0].ends_at))
    when = first if first == last else f"{first} to {last}"
    text = ""
    for step in map(_step, way.moments):  # the latest first
        if len(step) + len(text) > JOURNEY_MAX:
            break
        text = f"{step} {text}".strip()
    return f"{when}, {way.count} moment{'s' * (way.count != 1)}: {text}"


def _known(turns: Sequence[Turn], moment: DraftMoment) -> KnownMoment:
    times = [turn.created_at for turn in turns[moment.starts_at_message_idx : moment.ends_at_message_idx + 1]]
    return KnownMoment(moment.name, moment.summary, min(times), max(times))


def _step(moment: KnownMoment) -> str:
    """One moment in a line: its day, its name, and the first sentence of its summary, or its beginning."""
    said = _SENTENCE_END.split(" ".join(moment.summary.split()), maxsplit=1)[0]
    if len(said) > JOURNEY_STEP_MAX:
        said = f"{said[:JOURNEY_STEP_MAX].rsplit(' ', 1)[0]} …"
    return f"{moment.ends_at:%Y-%m-%d} {moment.name[:60].replace('-', ' ')}: {said}"
