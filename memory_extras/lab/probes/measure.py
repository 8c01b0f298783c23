"""What of a probe's answer stands in a context: its words, and the turns that say it.

No model answers or judges: that would cost two calls per question, differ from run to run, and measure the answering
model more than the memory. Negation is not detected: "not in Oslo" has the word Oslo.

The question itself counts for nothing, in whatever layer it stands, nor does the policy. A turn is there when it stands
there by its address, or when most of its words do, for a fact or a moment may say what it said.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from memory_extras.lab.models import Probe
from moments_app.context.assemble import Envelope
from moments_app.context.item import Item
from moments_app.models import PromptResource
from moments_app.turns.words import plain_words
from sessions_app.lexemes import QueryWord, stems_in, whole_words
from sessions_app.models import Message

MET = 0.5  # of the expected answer's words: then the probe is met
STANDS = 0.8  # of a turn's words: then it is said, whatever the line is
LEFT_OUT = ("policy", "query")
MOST_MISSING = 20  # words that are named
WORD_MAX_CHARS = 255


@dataclass(frozen=True)
class Measure:
    """What of an answer reached a context.

    Args:
        words_found, words_count: of the expected answer's words.
        missing_words: the first of the others.
        evidence_found, evidence_count: of the turns named as evidence.
        tokens: of the context.
        refs: addresses of what stands in it, by layer.
        problem: why there is no context; else blank.
    """

    words_found: int = 0
    words_count: int = 0
    missing_words: list[str] = field(default_factory=list)
    evidence_found: int = 0
    evidence_count: int = 0
    tokens: int = 0
    refs: dict[str, list[str]] = field(default_factory=dict)
    problem: str = ""

    @property
    def is_met(self) -> bool:
        """True when the context has enough of the words, and of the evidence, where some is named."""
        if self.problem or not self.words_count or (self.evidence_count and not self.evidence_found):
            return False
        return self.words_found >= MET * self.words_count


def measured(probe: Probe, evidence: Sequence[Message], envelope: Envelope) -> Measure:
    """Measure a context.

    Args:
        probe: that it was made for.
        evidence: the turns that are named, as far as they are there.
        envelope: the context.
    """
    items = _items(probe, envelope)
    stems = frozenset[str]().union(*(stems_in(item.text) for item in items))
    words = whole_words(probe.expected)
    missing = [word.word[:WORD_MAX_CHARS] for word in words if not _is_there(word, stems)]
    standing = {item.ref for item in items}
    layers = envelope.filled.layers.items()
    return Measure(
        words_found=len(words) - len(missing),
        words_count=len(words),
        missing_words=missing[:MOST_MISSING],
        evidence_found=sum(_stands(turn, probe, standing, stems) for turn in evidence),
        evidence_count=len(probe.evidence_sequences),
        tokens=envelope.filled.tokens,
        refs={name: [line.item.ref for line in lines if line.item.ref] for name, lines in layers if lines},
    )


def _items(probe: Probe, envelope: Envelope) -> list[Item]:
    layers = ((name, lines) for name, lines in envelope.filled.layers.items() if name not in LEFT_OUT)
    asked = plain_words(probe.question)
    return [line.item for _, lines in layers for line in lines if plain_words(line.item.text) != asked]


def _is_there(word: QueryWord, stems: frozenset[str]) -> bool:
    return not stems.isdisjoint(word.stems)


def _stands(turn: Message, probe: Probe, standing: set[str], stems: frozenset[str]) -> bool:
    assert probe.source_session is not None  # where evidence is named
    if f"rem://sessions/{probe.source_session.session_id}/messages/{turn.sequence}" in standing:
        return True
    words = whole_words(turn.content)
    return bool(words) and sum(_is_there(word, stems) for word in words) >= STANDS * len(words)


def setup_of(application: int) -> dict[str, dict[str, Any]]:
    """Return what contexts of an application are made under: its prompts' versions, and settings that matter."""
    prompts = PromptResource.objects.in_force(application)
    context, engine, embedding = settings.MEMORY_CONTEXT, settings.ENGINE, settings.EMBEDDING
    return {
        "prompts": {resource.uri: resource.active_version.number for resource in prompts if resource.active_version},
        "settings": {
            "ENGINE__PROVIDER": "openai" if engine.uses_model else "extractive",
            "ENGINE__MODEL": engine.model,
            "ENGINE__FAST_MODEL": engine.model_for_speed,
            "EMBEDDING__MODEL": embedding.model if embedding.is_on else "",
            "MEMORY_CONTEXT__MAX_TOKENS": context.max_tokens,
            "MEMORY_CONTEXT__HOT_TURNS_LIMIT": context.hot_turns_limit,
        },
    }
