"""Find everything that depends on some turns or items, using the sources that every derived row records.

An engine that received a turn may have used it anywhere in its answer, and in later answers that continue it. So all
results of one call count as derived, together with their continuations: the session's later moments, later versions of
a summary and later lines of a stream's text. The profile is rebuilt from the remaining statements.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from django.contrib.postgres.fields import ArrayField
from django.db.models import Exists, ForeignKey, Min, Model, OuterRef, Q, QuerySet

from moments_app.models import (
    Correction,
    EpisodeDraft,
    Job,
    KnownPerson,
    MemoryAtom,
    MemoryStream,
    Moment,
    Release,
    StatementChange,
    Summary,
)
from moments_app.moments.partition import rows_with_keys
from moments_app.provenance.rebuild import MEMORIES, merge_ranges
from moments_app.provenance.repeated import STEMS
from moments_app.streams.texts import first_consolidated
from moments_app.streams.timeline import facts_ended_by
from sessions_app import lexemes
from sessions_app.models import Event, Message, Session, UserProfile
from sessions_app.models.message import SequenceRange
from sessions_app.people.provenance import Provenance, declared


@dataclass(frozen=True)
class ItemDependents:
    """Some items of streams, and the rows that depend on them.

    Args:
        atoms: the items, followed by the items released from them.
        releases: releases of the atoms.
        lines: current and former lines of stream texts, written since the first consolidation that received one of the
            atoms.
        since: the time of that consolidation, keyed by stream.
        reopened: facts ended by the atoms or by their source turns. They become valid again.
        corrections: corrections of the atoms.
        people: known people without any other statement about them.
        others: rows of other tables, keyed by table, sources first.
    """

    atoms: list[MemoryAtom]
    releases: list[Release]
    lines: list[MemoryAtom]
    since: dict[int, datetime]
    reopened: list[MemoryAtom]
    corrections: list[Correction]
    people: list[KnownPerson]
    others: dict[type[Model], list[Model]]

    @property
    def streams(self) -> QuerySet[MemoryStream]:
        """The streams that lose an atom. Candidates are not part of their shard."""
        losing = {atom.stream_id for atom in self.atoms if not atom.is_candidate}
        return MemoryStream.objects.filter(pk__in=losing).order_by("pk")

    def addresses(self) -> set[str]:
        """Return the addresses that the items and their streams have in contexts."""
        return {uri for atom in self.atoms for uri in atom.uris} | {stream.uri for stream in self.streams}

    def by_kind(self) -> dict[str, Sequence[Model]]:
        """Return the rows that a retraction counts, keyed by kind."""
        found: dict[str, Sequence[Model]] = {"atoms": self.atoms, "releases": self.releases, "lines": self.lines}
        return found | {_plural(table): rows for table, rows in self.others.items() if rows}


@dataclass(frozen=True)
class TurnDependents(ItemDependents):
    """The rows that depend on some turns.

    Args:
        drafts: drafts for all turns of the session that are in no moment. New drafts are made for these turns.
        events: the session's partition events after the first of the turns.
        mentions: other rows that refer to one of the moments, or contain a journey that may include it.
        journeys: other moments whose journey may include one of the moments.
        ranges: ranges of turns that were formed together with one of these turns.
    """

    session: Session
    turns: QuerySet[Message]
    moments: list[Moment]
    drafts: list[EpisodeDraft]
    summaries: list[Summary]
    events: list[Message]
    mentions: list[Message | Job | Event]
    journeys: list[Moment]
    ranges: list[SequenceRange]

    def addresses(self) -> set[str]:
        """Return the addresses that the turns and dependent rows have in contexts."""
        session = f"rem://sessions/{self.session.session_id}"
        places = [*self.turns.values_list("sequence", flat=True), *(event.sequence for event in self.events)]
        own = {f"{session}/messages/{sequence}" for sequence in places} | {moment.uri for moment in self.moments}
        profile = {self.session.user.uri} if self.atoms else set()
        return super().addresses() | own | profile | ({f"{session}/summary"} if self.summaries else set())

    def by_kind(self) -> dict[str, Sequence[Model]]:
        return {
            "moments": self.moments,
            "summaries": self.summaries,
            **super().by_kind(),
            "partition_events": self.events,
            "mentions": self.mentions,
            "journeys": self.journeys,
        }


def _plural(table: type[Model]) -> str:
    return str(table._meta.verbose_name_plural).replace(" ", "_")


def dependents_of_turns(session: Session, turns: QuerySet[Message], *, is_whole: bool) -> TurnDependents:
    """Return everything that was derived from some turns, or from the whole session."""
    places = list(turns.order_by("sequence").values_list("sequence", "pk"))
    sequences, ids = [sequence for sequence, _ in places], [pk for _, pk in places]
    formations = formations_of(session, sequences)
    moments = list(session.moments.order_by("pk")) if is_whole else moments_on(session, sequences, formations)
    summaries = _summaries(session, ids, is_whole=is_whole)
    also = {
        Session: [session.pk] if is_whole else [],
        Moment: [moment.pk for moment in moments],
        Summary: [summary.pk for summary in summaries],
    }
    learned = dependents_of_items(
        _atoms(session, ids, formations, is_whole=is_whole), turns=ids, user=session.user, also=also
    )
    first = min(sequences, default=0)
    journeys = _journeys(session, moments)
    events = Message.objects.boundaries_of(session).filter(sequence__gte=0 if is_whole else first)
    return TurnDependents(
        session=session,
        turns=turns,
        moments=moments,
        drafts=list(EpisodeDraft.objects.filter(session=session).order_by("pk")),
        summaries=summaries,
        **vars(learned),
        events=list(events.order_by("pk")),
        mentions=rows_with_keys(session, [moment.key for moment in moments], _events_with_journeys(moments, journeys)),
        journeys=journeys,
        ranges=[] if is_whole else merge_ranges(_range_of(job) for job in formations),
    )


def has_any(turns: SequenceRange, sequences: Sequence[int]) -> bool:
    return any(turns[0] <= sequence <= turns[1] for sequence in sequences)


# --- moments ---


def moments_on(session: Session, sequences: Sequence[int], formations: Sequence[Job]) -> list[Moment]:
    """Return a session's moments, starting with those of the first call that received one of these turns.

    All later moments are included, because each call also receives the earlier moments.

    Args:
        formations: formations that received one of the turns. They may have drafted moments of other turns.
    """
    own = session.moments.order_by("first_sequence").select_related("job")
    drafted_by = {job.pk for job in formations}
    held = [m for m in own if has_any((m.first_sequence, m.last_sequence), sequences)]
    found = min([*held, *(m for m in own if m.job_id in drafted_by)], key=lambda m: m.first_sequence, default=None)
    if found is None:
        return []
    start = found.first_sequence
    if found.job_id:
        start = own.filter(job_id=found.job_id).aggregate(first=Min("first_sequence"))["first"]
    kept_from = session.kept_from_sequence
    if start < kept_from:
        again = [*held, *(m for m in own if m.job_id in drafted_by and m.first_sequence >= kept_from)]
        first = min((m.first_sequence for m in again), default=session.last_sequence + 1)
        if not _any_quotes([m for m in own if start <= m.first_sequence < first], session, sequences):
            start = first  # earlier moments can't be rebuilt, because their turns are gone
    return list(own.filter(first_sequence__gte=start).order_by("pk"))


def _any_quotes(moments: Sequence[Moment], session: Session, sequences: Sequence[int]) -> bool:
    """Return whether a moment contains words that occur in these turns but in no other turn of the moment."""
    said = _stems_of(Message.objects.all_turns_of(session, sequence__in=sequences).values_list("content", flat=True))
    return any(_quotes(moment, session, sequences, said) for moment in moments)


def _quotes(moment: Moment, session: Session, sequences: Sequence[int], said: AbstractSet[str]) -> bool:
    shared = _stems_of([moment.name, moment.summary, moment.detail, *moment.topic_tags]) & said
    own = Message.objects.all_turns_of(session, sequence__range=(moment.first_sequence, moment.last_sequence))
    if not own.exists():  # the moment's turns were deleted, so compare with all existing turns
        own = Message.objects.all_turns_of(session, sequence__gte=0)
    others = own.unretracted().exclude(sequence__in=sequences).values_list(STEMS, flat=True)
    return not shared <= {stem for stems in others for stem in stems or ()}


def _stems_of(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(stem for text in texts for stem in lexemes.stems_in(text))


def _journeys(session: Session, moments: Sequence[Moment]) -> list[Moment]:
    if not moments:
        return []
    since = min(moment.starts_at for moment in moments)  # not `created_at`, because rebuilt moments are newer
    telling = Moment.objects.with_journey_since(session.user_id, since).exclude(
        pk__in=[moment.pk for moment in moments]
    )
    return list(telling.order_by("pk"))


def _events_with_journeys(moments: Sequence[Moment], journeys: Sequence[Moment]) -> Q | None:
    """Return the condition for partition events with these journeys, or with the journey of a deleted moment."""
    if not moments:
        return None
    since = min(moment.starts_at for moment in moments)
    later = Q(created_at__gte=since) | Q(payload__moment_keys__has_any_keys=[moment.key for moment in journeys])
    return later & Q(payload__has_key="recent_moments_summary") & ~Q(payload__recent_moments_summary="")


# --- summaries ---


def _summaries(session: Session, ids: list[int], *, is_whole: bool) -> list[Summary]:
    own = Summary.objects.for_session(session).order_by("pk")
    if is_whole:
        return list(own)
    found = set(own.filter(source_message_ids__overlap=ids).values_list("pk", flat=True))
    for pk, base in own.values_list("pk", "base_id"):  # a base is older than the versions based on it
        if base in found:
            found.add(pk)
    return list(own.filter(pk__in=found))


# --- atoms and streams ---


def dependents_of_items(
    items: Sequence[MemoryAtom],
    *,
    turns: Sequence[int] = (),
    user: UserProfile | None,
    also: Mapping[type[Model], Sequence[int]],
) -> ItemDependents:
    """Return items with the rows that depend on them.

    Args:
        turns: primary keys of turns withdrawn with the items.
        user: the person of the turns; None if there are no turns.
        also: primary keys of other rows withdrawn with the items, keyed by table.
    """
    releases = list(Release.objects.in_effect().made_from(items).select_related("atom").order_by("pk"))
    atoms = [*items, *(release.atom for release in releases if release.atom)]
    since = first_consolidated(atoms)
    lines = [
        line
        for stream, time in since.items()
        for line in MemoryAtom.objects.filter(stream=stream).written_since(time).order_by("pk")
    ]
    people = _known_from(atoms)
    withdrawn: dict[type[Model], Collection[int]] = {
        **also,
        Message: turns,
        MemoryAtom: [row.pk for row in (*atoms, *lines)],
        KnownPerson: [person.pk for person in people],
    }
    return ItemDependents(
        atoms=atoms,
        releases=releases,
        lines=lines,
        since=since,
        reopened=facts_ended_by(atoms, turns),
        corrections=list(Correction.objects.filter(fact__in=atoms).order_by("pk")),
        people=people,
        others=_derived_rows(withdrawn, user),
    )


def _known_from(atoms: Sequence[MemoryAtom]) -> list[KnownPerson]:
    """Return the known people about whom there are no other atoms."""
    others = MemoryAtom.objects.exclude(pk__in=[atom.pk for atom in atoms]).filter(about=OuterRef("pk"))
    people = KnownPerson.objects.filter(pk__in={atom.about_id for atom in atoms if atom.about_id})
    return list(people.exclude(Exists(others)).order_by("pk"))


def _range_of(formation: Job) -> SequenceRange:
    return formation.result["first_sequence"], formation.result["last_sequence"]


def formations_of(session: Session, sequences: Sequence[int]) -> list[Job]:
    jobs = session.jobs.filter(process=MEMORIES.process, status=Job.Status.COMPLETED).order_by("pk")
    return [job for job in jobs if has_any(_range_of(job), sequences)]


def _atoms(session: Session, ids: list[int], formations: Sequence[Job], *, is_whole: bool) -> list[MemoryAtom]:
    """Return the atoms from the turns, and other atoms from the same calls.

    If not all turns are retracted, leave out atoms that an operator pinned.
    """
    own = session.atoms.order_by("pk")
    if is_whole:
        return [atom for atom in own if atom.source_message_ids or not atom.is_listed]
    return list(own.filter(Q(source_message_ids__overlap=ids) | Q(job__in=formations, is_pinned=False)))


# --- what can't be rebuilt, because retention deleted its source turns ---


def lost_notice(parts: Sequence[TurnDependents]) -> str:
    """Return a sentence about withdrawn rows that can't be rebuilt; blank if there are none.

    Args:
        parts: the withdrawn rows of each session, except sessions withdrawn as a whole, which are not rebuilt.
    """
    if not parts:
        return ""
    user = parts[0].session.user
    atoms = _count_without_turns(user, {atom.pk: atom for found in parts for atom in found.atoms}.values())
    moments = _with_deleted_turns(user, [moment for found in parts for moment in found.moments])
    counts = (("facts and observations", atoms), ("moments", len(moments)))
    lost = ", ".join(f"{name} ({count})" for name, count in counts if count)
    return f"Not rebuilt, because retention deleted the turns: {lost}." if lost else ""


def _count_without_turns(user: UserProfile, atoms: Collection[MemoryAtom]) -> int:
    sources = {pk for atom in atoms for pk in atom.source_message_ids}
    there = set(Message.objects.all_turns().filter(user_id=user.pk, pk__in=sources).values_list("pk", flat=True))
    return sum(not there.issuperset(atom.source_message_ids) for atom in atoms)


def _with_deleted_turns(user: UserProfile, moments: Iterable[Moment]) -> list[Moment]:
    old = [row for row in moments if row.source_session and row.first_sequence < row.source_session.kept_from_sequence]
    archived = Message.objects.archived().filter(user_id=user.pk, moment__in=[row.pk for row in old])
    there = set(archived.values_list("moment_id", flat=True))
    return [row for row in old if row.pk not in there]


# --- rows of other tables, found through the sources that each table declares ---

# This module, `retract.py` and `undo.py` have special rules for these tables.
HANDLED_SEPARATELY = {Correction, EpisodeDraft, KnownPerson, MemoryAtom, Message, Moment, StatementChange, Summary}


def generic_tables() -> list[Provenance]:
    """Return the tables that need no special rules. Each table comes after its sources."""
    return [table for table in declared() if table.is_withdrawn and table.model not in HANDLED_SEPARATELY]


def _derived_rows(
    withdrawn: Mapping[type[Model], Collection[int]], user: UserProfile | None
) -> dict[type[Model], list[Model]]:
    """Return the rows of generic tables that have a withdrawn source, keyed by table.

    All rows of a job are withdrawn together, because its engine may have used a source anywhere in its answer.

    Args:
        withdrawn: the primary keys of the withdrawn sources, keyed by table.
        user: the person of the withdrawn turns; None if there are no turns.
    """
    sources, found = dict(withdrawn), {}
    for table in generic_tables():
        own = table.model._base_manager.order_by("pk")
        rows = own.filter(_has_source(table, sources, user))
        if "job" in table.derived_from:
            rows = own.filter(Q(pk__in=rows.values("pk")) | Q(job__in=rows.exclude(job=None).values("job")))
        found[table.model] = list(rows)
        sources[table.model] = [row.pk for row in found[table.model]]
    return found


def _has_source(table: Provenance, sources: Mapping[type[Model], Collection[int]], user: UserProfile | None) -> Q:
    has = Q(pk__in=())
    for name in table.derived_from:
        column = table.model._meta.get_field(name)
        if isinstance(column, ForeignKey):
            has |= Q(**{f"{name}__in": sources.get(_table_of(column), ())})
        elif isinstance(column, ArrayField) and user:  # the column contains primary keys of turns
            has |= Q(**{f"{name}__overlap": list(sources.get(Message, ())), table.person: user})
    return has


def _table_of(column: ForeignKey[Any, Any]) -> type[Model]:
    return cast("type[Model]", column.related_model._meta.concrete_model)  # the column may refer to a proxy model
