"""Decide when each fact about an attribute is valid.

"Nora lives in Oslo" is valid until the time of "Nora moved to Bergen". An ended fact keeps its end time and its
replacement. A timeline is always recomputed from all its facts, ordered by time. So the result doesn't depend on the
order in which facts are added, retracted or restored. Facts ended by an operator, the application or a model stay
ended.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from moments_app.engines.statements import NAME, Statement, statement_of
from moments_app.models import Cause, Contradiction, MemoryAtom, StatementChange
from moments_app.models.atom import BY_DATE, WRITTEN_ATTRIBUTES, MemoryAtomQuerySet
from moments_app.models.stream import MemoryStream
from moments_app.streams.known_people import rebuild_known_people
from moments_app.streams.profile import rebuild_profiles
from moments_app.streams.texts import remove_lines_with
from sessions_app.database.sql import insert_if_missing, lock_rows
from sessions_app.models import UserProfile
from sessions_app.refusals import Refusal

MIN_CONFIDENCE = 0.7  # minimum confidence of a fact that ends another without asking an operator
BY_ENGINE, BY_ANSWER = "engine:", "answer:"  # prefixes of `ended_by` for engines and operators' answers
# Matches facts that rules, an engine or an operator's answer ended because of another fact, but not facts that a person
# ended.
ENDED_BY_FACT = Q(ended_by="") | Q(ended_by__startswith=BY_ENGINE) | Q(ended_by__startswith=BY_ANSWER)
UNCERTAIN = "the person may have several of these, or the later fact may be about someone else"
UNSURE = "the speaker was not sure"
TIMEZONE = "timezone"  # `reason` of changes to the end times of plans


class CannotDecide(Refusal):
    """This answer is not possible. The message says why."""

    code = "cannot_decide"


class Timeline(NamedTuple):
    """The statements about one attribute of a subject. Two known people with the same name have separate timelines."""

    subjects: frozenset[str]  # names of the subject in statements; empty for a known person
    attribute: str
    about: int | None = None  # primary key of the known person

    @property
    def subject_filter(self) -> Q:
        return Q(about=self.about) if self.about else Q(subject__in=self.subjects)


@dataclass(frozen=True)
class End:
    until: datetime
    at: datetime  # the time of the statement that ended the fact
    by: MemoryAtom
    is_wrong: bool = False  # whether the fact was never true


def recompute_timelines(atoms: Iterable[MemoryAtom], cause: Cause) -> list[MemoryAtom]:
    """Recompute the timelines of these facts, in the caller's transaction. The caller then calls `refresh_derived`.

    Returns:
        The facts that ended, or are valid again.
    """
    timed = [atom for atom in atoms if _has_timeline(atom)]
    changed: list[MemoryAtom] = []
    for user in sorted({atom.user_id for atom in timed if atom.user_id}):
        names = MemoryAtom.objects.names_of_user(user)
        timelines = {_timeline_of(atom, names) for atom in timed if atom.user_id == user}
        if any(one.subjects == names and one.attribute == NAME for one in timelines):
            own_facts = MemoryAtom.objects.findable().filter(user=user, subject__in=names).exclude(attribute="")
            timelines |= {Timeline(names, attribute) for attribute in own_facts.values_list("attribute", flat=True)}
        for one in sorted(timelines, key=lambda one: (one.attribute, sorted(one.subjects), one.about or 0)):
            facts = MemoryAtom.objects.of_timeline(user, one.subject_filter, one.attribute)
            changed += _recompute([atom for atom in facts if _timeline_of(atom, names) == one], cause)
    return changed


def _timeline_of(atom: MemoryAtom, names: frozenset[str]) -> Timeline:
    is_of_user = atom.subject in names and atom.about_kind != MemoryAtom.About.PERSON
    if atom.about_id and not is_of_user:
        return Timeline(frozenset(), atom.attribute, atom.about_id)
    return Timeline(names if is_of_user else frozenset({atom.subject}), atom.attribute)


def end(atom: MemoryAtom, ending: End, cause: Cause, *, ended_by: str = "") -> None:
    remove_lines_with([atom], cause)
    MemoryAtom.objects.filter(pk=atom.pk).change(
        StatementChange.Action.SUPERSEDED,
        cause,
        state=MemoryAtom.State.ENDED,
        valid_until=ending.until,
        ended_at=ending.at,
        ended_by=ended_by,
        end_message_ids=ending.by.source_message_ids,
        replaced_by=ending.by,
        is_wrong=ending.is_wrong,
    )


def end_in_favor_of(fact: MemoryAtom, later: MemoryAtom, cause: Cause) -> bool:
    """End a fact that a later one replaces, according to an engine. If the later one is uncertain, ask an operator.

    Return whether the fact ended.
    """
    if later.confidence is not None and later.confidence < MIN_CONFIDENCE:
        ask_operator(fact, later, UNSURE)
        return False
    end(fact, _end_at(fact, later), cause, ended_by=f"{BY_ENGINE}{later.engine}")
    return True


def end_past_plans() -> int:
    """End the plans whose day is over, without changing their texts. Return their number."""
    people = {plan.user_id for plan in MemoryAtom.objects.past_plans().only("user_id")}
    return sum([_end_past_plans_of(user) for user in people])


@transaction.atomic
def _end_past_plans_of(user: int | None) -> int:
    lock_rows(UserProfile.objects.filter(pk__in=[user] if user else []))
    recompute_plan_ends(MemoryAtom.objects.past_plans().filter(user=user), Cause(BY_DATE, TIMEZONE))
    plans = list(MemoryAtom.objects.past_plans().filter(user=user))
    remove_lines_with(plans, Cause(BY_DATE))
    MemoryAtom.objects.filter(pk__in=[plan.pk for plan in plans]).change(
        StatementChange.Action.ENDED,
        Cause(BY_DATE),
        state=MemoryAtom.State.ENDED,
        ended_at=F("valid_until"),
        ended_by=BY_DATE,
    )
    refresh_derived(plans)
    return len(plans)


def recompute_plan_ends(plans: MemoryAtomQuerySet, cause: Cause) -> None:
    """Recompute when a locked person's plans end, in the person's current time zone."""
    lock_rows(MemoryStream.objects.filter(atoms__in=plans))  # locked after the person, as in corrections and additions
    changed = [plan for plan in plans.select_related("user") if plan.valid_until != plan.planned_until]
    StatementChange.objects.record(
        StatementChange.Action.EDITED, cause, [(plan, {"valid_until": plan.valid_until}) for plan in changed]
    )
    for plan in changed:
        plan.valid_until = plan.planned_until
    MemoryAtom.objects.bulk_update(changed, ["valid_until"])


@transaction.atomic
def decide(question: Contradiction, decision: str, *, requested_by: str) -> None:
    """Record an operator's decision on whether one fact ended another. A blank decision removes the answer.

    Raises:
        CannotDecide: the question was already answered, has no answer to remove, or one of the facts is no longer
            valid.
    """
    lock_rows(UserProfile.objects.filter(pk=question.user_id))
    locked = Contradiction.objects.select_for_update(of=("self",)).select_related("earlier", "later")
    question = locked.get(pk=question.pk)
    if bool(question.decision) == bool(decision):
        raise CannotDecide(
            "This question was already answered." if decision else "This question has no answer to undo."
        )
    facts, cause = (question.earlier, question.later), Cause(requested_by, question.reason)
    if decision == Contradiction.Decision.ACCEPTED:
        if any(fact.state != MemoryAtom.State.ACTIVE for fact in facts):
            raise CannotDecide("One of the facts is no longer true.")
        end(question.earlier, _end_at(*facts), cause, ended_by=f"{BY_ANSWER}{requested_by}")
    elif question.decision == Contradiction.Decision.ACCEPTED and question.earlier.replaced_by_id == question.later_id:
        reopen([question.earlier], cause)
    question.decision, question.decided_by = decision, requested_by if decision else ""
    question.decided_at = timezone.now() if decision else None
    question.save(update_fields=["decision", "decided_by", "decided_at"])
    refresh_derived([*facts, *recompute_timelines(facts, cause)])


def _end_at(fact: MemoryAtom, later: MemoryAtom) -> End:
    until = max(later.valid_from or later.formed_at, fact.valid_from or fact.formed_at)
    return End(min(until, later.formed_at), later.formed_at, later)


def facts_ended_by(atoms: Sequence[MemoryAtom], turns: Sequence[int] = ()) -> list[MemoryAtom]:
    """Return the facts that were ended by facts or turns that will be removed. Excludes facts that people ended.

    Args:
        atoms: facts that will be removed.
        turns: primary keys of turns that will be removed.
    """
    users = {atom.user_id for atom in atoms if atom.user_id}
    by_them = Q(replaced_by__in=[atom.pk for atom in atoms]) | Q(end_message_ids__overlap=list(turns))
    found = MemoryAtom.objects.filter(by_them, ENDED_BY_FACT, user__in=users, state=MemoryAtom.State.ENDED)
    return list(found.exclude(pk__in=[atom.pk for atom in atoms]).order_by("pk"))


def reopen(atoms: Sequence[MemoryAtom], cause: Cause) -> None:
    """Make ended facts valid again.

    If the stream already has an active fact with the same words, this fact replaces the ended one instead.
    """
    for atom in atoms:
        _reopen(atom, cause)


def _reopen(atom: MemoryAtom, cause: Cause) -> None:
    same = MemoryAtom.objects.duplicates_of(atom).exclude(pk=atom.pk).first()
    if same:
        end(atom, End(same.formed_at, same.formed_at, same), cause)
    else:
        MemoryAtom.objects.filter(pk=atom.pk).change(StatementChange.Action.REOPENED, cause, **reopened_columns(atom))


def reopened_columns(atom: MemoryAtom) -> dict[str, object]:
    """Return column values that make an ended statement valid again. A plan whose day has passed stays ended."""
    until = atom.planned_until
    columns: dict[str, object] = {"valid_until": until, "end_message_ids": [], "replaced_by": None, "is_wrong": False}
    if until and until <= timezone.now():
        return columns | {"state": MemoryAtom.State.ENDED, "ended_at": until, "ended_by": BY_DATE}
    state = MemoryAtom.State.ACTIVE if atom.position is None else MemoryAtom.State.LINE
    return columns | {"state": state, "ended_at": None, "ended_by": ""}


def refresh_derived(atoms: Iterable[MemoryAtom]) -> None:
    """After changes to items, invalidate cached contexts, and rebuild texts, profiles and known people."""
    atoms = list(atoms)
    MemoryStream.objects.filter(pk__in={atom.stream_id for atom in atoms}).refresh()
    rebuild_known_people({atom.about_id for atom in atoms if atom.about_id})
    rebuild_profiles({atom.user_id for atom in atoms if atom.user_id and not atom.is_candidate})


def ask_operator(earlier: MemoryAtom, later: MemoryAtom, reason: str) -> bool:
    """Ask an operator whether a fact ended another. Return whether the question is new."""
    assert earlier.user_id is not None  # facts of shards never end each other
    asked = Contradiction(user_id=earlier.user_id, earlier=earlier, later=later, reason=reason)
    return insert_if_missing(asked)


def _has_timeline(atom: MemoryAtom) -> bool:
    is_timed = bool(atom.attribute) and atom.attribute not in WRITTEN_ATTRIBUTES
    return is_timed and bool(atom.user_id) and not atom.is_candidate


def _recompute(facts: Sequence[MemoryAtom], cause: Cause) -> list[MemoryAtom]:
    """Decide which facts of a timeline are valid. Return the facts that ended or became valid again."""
    changed = []
    parsed = [(fact, statement) for fact in facts if (statement := statement_of(fact.content))]
    for number, (fact, statement) in enumerate(parsed):
        ending = _end_of(fact, statement, parsed[number + 1 :])
        if fact.ended_by or (fact.state == MemoryAtom.State.ABSORBED and ending is None):
            continue
        if ending and _differs(fact, ending):
            end(fact, ending, cause)
            changed.append(fact)
        elif ending is None and fact.state == MemoryAtom.State.ENDED:
            _reopen(fact, cause)
            changed.append(fact)
    return changed


def _end_of(
    fact: MemoryAtom,
    statement: Statement,
    later: Sequence[tuple[MemoryAtom, Statement]],
) -> End | None:
    """Find the first later statement that certainly ends a fact. Return the end of the fact, or None.

    Ask an operator about each uncertain statement before it.
    """
    for other, other_statement in later:
        ends = other_statement.ends(statement)
        is_sure = other.confidence is None or other.confidence >= MIN_CONFIDENCE
        if ends and is_sure:
            is_wrong = other_statement.corrects(statement)
            until = fact.valid_from or fact.formed_at if is_wrong else other.valid_from or other.formed_at
            return End(max(until, fact.valid_from or until), other.formed_at, other, is_wrong)
        if ends is not False:
            ask_operator(fact, other, UNSURE if ends else UNCERTAIN)
    return None


def _differs(fact: MemoryAtom, ending: End) -> bool:
    return (fact.replaced_by_id, fact.valid_until, fact.is_wrong) != (ending.by.pk, ending.until, ending.is_wrong)
