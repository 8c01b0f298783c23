"""Declares the extra's tables for exports, erasures, retractions and housekeeping."""

from collections.abc import Iterator

from memory_extras.lab.models import Probe, ProbeResult
from memory_extras.lab.probes.run import RunProbes
from moments_app.models import Retraction
from moments_app.models.atom import content_hash
from moments_app.provenance.export_format import REQUESTED_BY, SourceSequences, session_of
from moments_app.reports.housekeeping import EXTRA_TABLES
from sessions_app.models import Session
from sessions_app.people.export_format import Column, File, PublicId, Reference, RestoredRow
from sessions_app.people.import_user import ImportState
from sessions_app.people.provenance import Provenance, declare

NEWEST = 10  # maximum number of probes to run again after a retraction


class QuestionText(Column):
    """The question of a probe. Skips questions that their session already has, so read the session column first."""

    def read(self, rows: list[RestoredRow], importing: ImportState) -> list[RestoredRow]:
        there = Probe.objects.for_user(importing.user)
        kept = set(there.values_list("session_id", "question_hash"))
        left = []
        for row in rows:
            row.columns |= {"question_hash": content_hash(row.line[self.name]), "created_by": REQUESTED_BY}
            place = (row.columns["session_id"], row.columns["question_hash"])
            if place not in kept:
                kept.add(place)
                left.append(row)
        return left


def questions(retraction: Retraction) -> Iterator[tuple[str, Session | None]]:
    """Yield the questions of withdrawn probes, and then those of the person's newest probes."""
    for item in retraction.items.withdrawn(Probe).order_by("object_pk"):
        yield item.data["question"], Session.objects.for_user(retraction.user).filter(pk=item.data["session"]).first()
    for probe in Probe.objects.for_user(retraction.user).select_related("session").newest_first()[:NEWEST]:
        yield probe.question, probe.session


declare(
    Provenance(
        Probe,
        File(
            "probes",
            about="test questions with the expected answers. `asked_in` is the session in which a question is asked",
            fields="probe_id asked_in question expected session_id evidence_sequences source_sequences created_at "
            "updated_at",
            columns=(
                PublicId("probe_id"),
                Reference("asked_in", "session", Session, "session_id"),
                session_of("source_session"),
                SourceSequences(),
                QuestionText("question"),
            ),
            key=("probe_id",),
            is_newer=True,
        ),
        derived_from=("source_session", "source_message_ids"),
        is_withdrawn=True,
        questions=questions,
    ),
    Provenance(
        ProbeResult,
        File(
            "probe_results",
            about="how much of the expected answers the contexts contained",
            fields="probe_id run_id is_met words_found words_count missing_words evidence_found evidence_count tokens "
            "refs setup problem created_at",
            columns=(Reference("probe_id", "probe", Probe, "probe_id"),),
            is_restored=False,
        ),
        derived_from=("probe", "refs"),
        processes=(RunProbes.name,),
        is_withdrawn=True,
    ),
)
EXTRA_TABLES["probe_results"] = ProbeResult.objects.expired
