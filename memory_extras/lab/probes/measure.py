"""Measures how much of a probe's expected answer a context contains: its words, and the evidence turns.

No model answers or judges. That would cost two calls per question, vary between runs, and measure the answering model
more than the memory. Negation is not detected: "not in Oslo" has the word Oslo.

The question itself and the policy are ignored. A turn counts as present if the context has its address or most of its
words, because a fact or a moment may repeat its content.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from memory_extras.lab.models import Probe
from moments_app.context.assemble import Envelope
from moments_app.context.item import Item
from moments_app.engines.words import plain_words
from moments_app.models import PromptResource
from sessions_app.lexemes import QueryWord, stems_in, whole_words
from sessions_app.models import Message

MET = 0.5  # share of the expected answer's words from which a probe is met
STANDS = 0.8  # share of a turn's words from which it counts as present
LEFT_OUT = ("policy", "query")
MAX_MISSING = 20  # missing words to report
WORD_MAX_CHARS = 255


@dataclass(frozen=True)
class Measure:
    """The part of an answer that reached a context.

    Args:
        words_found, words_count: Numbers of the expected answer's words.
        missing_words: The first of the missing words.
        evidence_found, evidence_count: Numbers of evidence turns.
        refs: The addresses of its items, by layer.
        problem: Why there is no context. Blank if there is one.
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
        """Whether the context has enough of the words and, if there is evidence, one of its turns."""
        if self.problem or not self.words_count or (self.evidence_count and not self.evidence_found):
            return False
        return self.words_found >= MET * self.words_count


def measured(probe: Probe, evidence: Sequence[Message], envelope: Envelope) -> Measure:
    """Measure a context.

    Args:
        evidence: The evidence turns that exist.
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
        missing_words=missing[:MAX_MISSING],
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
    assert probe.source_session is not None  # evidence implies a session
    if f"rem://sessions/{probe.source_session.session_id}/messages/{turn.sequence}" in standing:
        return True
    words = whole_words(turn.content)
    return bool(words) and sum(_is_there(word, stems) for word in words) >= STANDS * len(words)


def setup_of(application: int) -> dict[str, dict[str, Any]]:
    """Return the prompt versions and relevant settings for contexts of an application."""
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
