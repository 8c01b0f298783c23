"""The declaration of the table, which exports, imports, retractions and erasures read."""

from moments_app.provenance.export_format import SourceSequences, session_of
from sessions_app.people.export_format import File, PublicId
from sessions_app.people.provenance import Provenance, declare
from tests.support.promises_app.models import Promise
from tests.support.promises_app.processes import NotePromises

declare(
    Provenance(
        Promise,
        File(
            "promises",
            about="what the person has promised",
            fields="promise_id session_id source_sequences text created_at",
            columns=(PublicId("promise_id"), session_of("source_session"), SourceSequences()),
            is_newer=True,
        ),
        address=("rem://promises/", "promise_id"),
        derived_from=("source_session", "source_message_ids", "job"),
        processes=(NotePromises.name,),
        is_withdrawn=True,
    )
)
