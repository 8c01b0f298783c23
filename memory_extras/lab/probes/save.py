"""Save probes, with the same checks for applications and operators."""

from collections.abc import Sequence
from dataclasses import dataclass

from memory_extras.lab.models import EXPECTED_MAX_CHARS, NO_SEARCHABLE_WORD, QUESTION_MAX_CHARS, Probe
from moments_app.models.atom import content_hash
from sessions_app.database.sql import insert_if_missing
from sessions_app.lexemes import whole_words
from sessions_app.models import Message, Session, UserProfile
from sessions_app.refusals import Conflict, Refusal

MAX_PROBES = 100  # maximum probes of a person


class CannotProbe(Refusal):
    """The probe has no words to search for, or names turns that don't exist. The message says which."""

    code = "cannot_probe"


class TooManyProbes(Conflict):
    """The person has the maximum number of probes."""

    code = "too_many_probes"


@dataclass(frozen=True)
class Draft:
    """A probe to save.

    Args:
        session: The session to ask in. None for the person's latest session.
        evidence: The sequence numbers of turns in the source session.
        made_from: Further turns of that session, which the question and the answer were derived from.
    """

    question: str
    expected: str
    session: Session | None = None
    source_session: Session | None = None
    evidence: Sequence[int] = ()
    made_from: Sequence[int] = ()


def draft_from(session: Session, sequence: int) -> Draft | None:
    """Return the user's turn as the question and the reply as the expected answer. None if there is no such pair.

    Args:
        sequence: The sequence number of the question, or of its answer.
    """
    turns = session.messages.turns().unretracted().filter(user_id=session.user_id)
    asked = turns.filter(role=Message.Role.USER, sequence__lte=sequence).order_by("-sequence").first()
    if asked is None:
        return None
    later = turns.filter(role=Message.Role.ASSISTANT, sequence__gt=asked.sequence).exclude(content="")
    answer = later.order_by("sequence").first()
    if answer is None:
        return None
    return Draft(
        asked.content[:QUESTION_MAX_CHARS],
        answer.content[:EXPECTED_MAX_CHARS],
        session=session,
        source_session=session,
        evidence=[answer.sequence],
        made_from=[asked.sequence, answer.sequence],
    )


def save_probe(user: UserProfile, draft: Draft, *, created_by: str) -> tuple[Probe, bool]:
    """Save a probe in the caller's transaction, unless its session already has one with this question.

    Returns:
        The new or existing probe, and whether it is new.

    Raises:
        CannotProbe: The answer has no searchable words, or a turn doesn't exist.
        TooManyProbes: The person has `MAX_PROBES` probes.
    """
    probe = Probe(user=user, session=draft.session, question=draft.question, created_by=created_by)
    probe.question_hash = content_hash(draft.question)
    change_probe(probe, draft)
    existing = Probe.objects.for_user(user)
    same = existing.filter(session=draft.session, question_hash=probe.question_hash)
    if not same.exists() and existing.count() >= MAX_PROBES:
        raise TooManyProbes(f"A person can have at most {MAX_PROBES} probes. Delete one first.")
    return (probe, True) if insert_if_missing(probe) else (same.get(), False)


def change_probe(probe: Probe, draft: Draft) -> None:
    """Set the expected answer and the evidence without saving, or raise `CannotProbe` as `save_probe` does."""
    if not whole_words(draft.expected):
        raise CannotProbe(f"expected: {NO_SEARCHABLE_WORD}")
    probe.expected, probe.source_session = draft.expected, draft.source_session
    probe.evidence_sequences = sorted(set(draft.evidence))
    made_from = _turns(probe, {*draft.evidence, *draft.made_from})
    # Keep earlier sources, because the question may come from a turn.
    probe.source_message_ids = sorted({*probe.source_message_ids, *made_from})


def _turns(probe: Probe, sequences: set[int]) -> list[int]:
    """Return primary keys of turns, also archived ones. Raise `CannotProbe` if one is missing or was retracted."""
    if not sequences:
        return []
    if probe.source_session is None:
        raise CannotProbe("session_id: send the session of the evidence turns.")
    turns = Message.objects.filter(session=probe.source_session, user=probe.user, retracted_at=None)
    found = dict(
        turns.exclude(kind=Message.Kind.PARTITION).filter(sequence__in=sequences).values_list("sequence", "pk")
    )
    if missing := sorted(sequences - set(found)):
        raise CannotProbe(f"evidence_sequences: the session has no turn {missing[0]}, or it was retracted.")
    return [found[sequence] for sequence in sorted(sequences)]
