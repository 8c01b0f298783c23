"""Declare the tables of a person's memory: their owner, their sources, and how they are exported and imported."""

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, StringConstraints

from moments_app.models import (
    ContextReceipt,
    Contradiction,
    CorrectedTurn,
    Correction,
    EngineCall,
    EntityLink,
    EpisodeDraft,
    FactEmbedding,
    ItemEmbedding,
    Job,
    KeptExchange,
    KnownPerson,
    MemoryAtom,
    MemoryStream,
    Moment,
    MomentEmbedding,
    OwnText,
    Release,
    ReleaseSource,
    RetractedItem,
    Retraction,
    ServedLine,
    StatementChange,
    StoredItem,
    Summary,
    TurnEmbedding,
    Vocabulary,
    WebhookDelivery,
    Word,
)
from moments_app.models.moment import EPISODE_FIELDS, Episode
from moments_app.models.stored_item import KEY_MAX, TEXT_MAX, TTL_MAX, TTL_MIN
from moments_app.moments.build import BuildMoments
from moments_app.moments.rebuild import RebuildMoments
from moments_app.provenance import erase
from moments_app.provenance.export_format import (
    FORMER_FIELDS,
    About,
    AtomText,
    FormerEntity,
    IsListed,
    Labels,
    MomentKey,
    Number,
    NumberOf,
    OtherAtom,
    ServedContext,
    SourceSequences,
    ValuesBefore,
    defer_references,
    derive_profile,
    embed_imported_memories,
    embed_imported_turns,
    link_bases,
    link_moments,
    queue_word_count,
    restore_references,
    session_of,
    stream,
)
from moments_app.recall.embed import Embed
from moments_app.recall.index_words import CountWords
from moments_app.sessions.digest import DigestSession
from moments_app.sessions.settle import Settle
from moments_app.streams.consolidate import Consolidate
from moments_app.streams.form import FormMemories
from moments_app.summaries import RollSummary
from sessions_app.people.export_format import File, Name, NotRestored, PublicId, Reference
from sessions_app.people.provenance import Provenance, declare

IS_DERIVED = "it is derived from other rows, and is rebuilt"
NO_TEXT = "it contains addresses, sizes or hashes, but no text"
RECORDS_RETRACTIONS = "it records retractions"
# Values for moments in exports made before engines wrote these fields.
BLANK = {field.name: field.get_default() for field in Episode._meta.local_fields if field.blank}
# Values for facts in exports made before facts had times.
WITHOUT_TIMES: dict[str, object] = dict.fromkeys(
    ("valid_from", "valid_until", "ended_at", "replaced_by", "corrected_at", "due_at", "confidence")
)
WITHOUT_TIMES |= {"worth": 0.0, "is_wrong": False}
WITHOUT_TIMES |= dict.fromkeys(("subject", "attribute", "value", "ended_by"), "")
# Values for facts in exports made before facts had kinds. Both kinds are derived again from the text.
WITHOUT_KINDS: dict[str, object] = {"kind": "", "about_kind": "", "about": None, "speaker": ""}
# Values for facts in exports made before the lines of texts were statements.
WITHOUT_LINES: dict[str, object] = dict.fromkeys(("merged_into", "position", "consolidated_at"))

declare(
    Provenance(
        Moment,
        File(
            "moments",
            about="remembered episodes. `previous_moment_keys` lists the earlier moments, nearest first",
            fields=f"key {' '.join(EPISODE_FIELDS)} category starts_at ends_at session_id first_sequence last_sequence "
            "previous_moment_keys journey engine created_at updated_at",
            columns=(MomentKey("key"), session_of("source_session", is_optional=True)),
            missing={"journey": ""} | BLANK,
            after=link_moments,
        ),
        address=("rem://moments/key/", "key"),
        derived_from=("source_session", "first_sequence", "last_sequence", "job"),
        processes=(BuildMoments.name, RebuildMoments.name, Settle.name),
        is_withdrawn=True,
        is_rewritten=True,
    ),
    Provenance(
        EpisodeDraft,
        derived_from=("session", "first_sequence", "last_sequence", "job"),
        processes=(FormMemories.name,),
        not_exported="it becomes a moment, and is recreated if it is missing",
        is_withdrawn=True,
    ),
    Provenance(
        Summary,
        File(
            "summaries",
            about="the versions of each session's rolling summary",
            fields="session_id number base status start_sequence end_sequence source_sequences text facts engine "
            "generation_time_ms error created_at completed_at",
            columns=(
                session_of("session"),
                Number("session_id"),
                NumberOf("base", "session_id", Summary),
                SourceSequences(),
            ),
            order=("session_id", "id"),
            key=("session_id", "number"),
            after=link_bases,
        ),
        derived_from=("source_message_ids", "base"),
        processes=(RollSummary.name,),
        is_withdrawn=True,
    ),
    Provenance(
        MemoryStream,
        File(
            "streams",
            about="memory streams, each with its text",
            fields="stream_id stream_type agent_id session_id is_active extraction_prompt extracts_observations "
            "extracts_facts observation_min observation_max observation_max_words fact_min fact_max fact_max_words "
            "extraction_model consolidation_prompt consolidation_trigger consolidated_max_words fact_buffer_max "
            "consolidation_model pinned_content consolidated_content last_updated_at",
            columns=(PublicId("stream_id"), session_of("session")),
            types={"stream_type": Literal["session", "user"]},
            missing={"extraction_model": ""},
            key=("stream_id",),
            skip_existing=True,
        ),
        address=("rem://streams/", "stream_id"),
        derived_from=("atoms",),
        processes=(Consolidate.name,),
        is_rewritten=True,
    ),
    Provenance(
        KnownPerson,
        File(
            "people",
            about="other people that the person's facts name",
            fields="key name aliases relationship created_at",
            columns=(Name("key"),),
            key=("key",),
            rows=lambda user: KnownPerson.objects.for_user(user).with_statements(),
            is_newer=True,
        ),
        processes=(FormMemories.name, Settle.name),
        is_withdrawn=True,
    ),
    Provenance(
        MemoryAtom,
        File(
            "atoms",
            about="facts and observations in the streams, also tasks, goals and problems; and the lines of the "
            "streams' texts. `merged_into` names the line that contains an observation",
            fields="atom_id stream_id atom_type content state merged_into position consolidated_at formed_at "
            "created_at is_pinned access_count last_accessed_at session_id source_sequences related_users engine "
            "subject attribute value valid_from valid_until ended_at ended_by replaced_by is_wrong corrected_at "
            "confidence worth external_id kind about_kind about speaker due_at is_listed",
            columns=(
                About(),
                stream(),
                PublicId("atom_id"),
                AtomText("content"),
                IsListed(),
                OtherAtom("merged_into", "merged_into_id"),
                OtherAtom("replaced_by", "replaced_by_id"),
                session_of("source_session", is_optional=True),
                SourceSequences(),
            ),
            missing={"related_users": [], "external_id": None, "is_listed": False}
            | WITHOUT_TIMES
            | WITHOUT_KINDS
            | WITHOUT_LINES,
            former="absorbed_in shown_in",
            order=("stream_id", "id"),
            key=("atom_id",),
            rows=MemoryAtom.objects.of_person,
            after=defer_references,
            at_end=restore_references,
        ),
        File(
            "shard_atoms",
            about="items that agents' shards learned from this person. Other people see only released versions, with "
            "a different wording",
            fields="shard agent_id atom_type content state formed_at related_users",
            columns=(NotRestored("shard", "stream__name"), NotRestored("agent_id", "stream__agent_id")),
            rows=MemoryAtom.objects.in_shards_from,
            is_restored=False,
        ),
        File(
            "entities",
            about="tasks, goals and problems",
            fields=f"entity_id kind {' '.join(FORMER_FIELDS)} due_at session_id created_at external_id",
            columns=(FormerEntity(), session_of("source_session", is_optional=True)),
            types=FORMER_FIELDS | {"kind": Literal["task", "goal", "problem"]},
            missing={"external_id": None},
            key=("entity_id",),
            is_former=True,
        ),
        address=("rem://atoms/", "atom_id"),
        derived_from=("source_session", "source_message_ids", "job", "written_by", "parts"),
        processes=(FormMemories.name, DigestSession.name, Settle.name, Consolidate.name),
        is_withdrawn=True,
        is_rewritten=True,
        imported=derive_profile,
        erase=erase.forget_in_memories,
        count_others=erase.count_in_memories,
    ),
    Provenance(
        StatementChange,
        File(
            "statement_changes",
            about="changes of facts and observations: when, by whom, why, and the values before",
            fields="change_id atom_id action before actor reason created_at",
            columns=(
                PublicId("change_id"),
                Reference("atom_id", "statement", MemoryAtom, "atom_id"),
                ValuesBefore("before"),
            ),
            rows=StatementChange.objects.of_person,
            is_newer=True,
        ),
        derived_from=("statement",),
        is_withdrawn=True,
    ),
    *(
        Provenance(
            model,
            person=person,
            derived_from=derived_from,
            not_exported="the released wording is not the person's own",
            is_rewritten=True,
        )
        for model, person, derived_from in (
            (Release, "sources__user", ("sources",)),
            (ReleaseSource, "user", ("atom",)),
        )
    ),
    Provenance(
        Contradiction,
        derived_from=("earlier", "later"),
        not_exported="it asks operators about facts, and the facts are exported",
        is_withdrawn=True,
    ),
    Provenance(
        Correction,
        File(
            "corrections",
            about="facts that were corrected, ended or withdrawn, with their former text",
            fields="correction_id kind before after valid_until created_at undone_at",
            is_restored=False,
        ),
        derived_from=("fact",),
        is_withdrawn=True,
    ),
    Provenance(
        CorrectedTurn,
        File(
            "corrected_turns",
            about="corrected words in turns, with their corrections",
            fields="session_id sequence wrong right",
            columns=(session_of("session"),),
            types={"sequence": NonNegativeInt},
            order=("session_id", "sequence", "id"),
            is_newer=True,
        ),
        derived_from=("session", "sequence", "correction"),
        is_rewritten=True,
    ),
    Provenance(
        OwnText,
        File(
            "own_texts",
            about="lines in turns that repeat a served context. No memory is derived from them",
            fields="session_id sequence places",
            columns=(session_of("session"),),
            types={"sequence": NonNegativeInt, "places": list[Annotated[int, Field(ge=0, le=2**31 - 1)]] | None},
            order=("session_id", "sequence"),
            is_newer=True,
        ),
        derived_from=("session", "sequence"),
        not_retracted="it refers to places in turns, and the turns stay in the transcript",
    ),
    Provenance(
        EntityLink,
        File(
            "entity_links",
            about="links between tasks, goals and problems",
            fields="from_entity to_entity relation",
            columns=tuple(Reference(end, end, MemoryAtom, "atom_id") for end in ("from_entity", "to_entity")),
            skip_existing=True,
        ),
        derived_from=("from_entity", "to_entity"),
        is_withdrawn=True,
    ),
    Provenance(
        StoredItem,
        File(
            "items",
            about="items that the application stored under a namespace and a key",
            fields="namespace key value text ttl expires_at created_at updated_at",
            columns=(Labels("namespace"),),
            types={
                "key": Annotated[str, StringConstraints(min_length=1, max_length=KEY_MAX)],
                "value": dict[str, Any],
                "text": Annotated[str, StringConstraints(max_length=TEXT_MAX)],
                "ttl": Annotated[float, Field(ge=TTL_MIN, le=TTL_MAX)] | None,
            },
            missing={"ttl": None, "expires_at": None},
            order=("namespace", "key"),
            rows=lambda user: StoredItem.objects.filter(user=user).live(),
            is_newer=True,
            skip_existing=True,
        ),
        not_retracted="the application wrote it, and models don't receive it",
    ),
    Provenance(
        ContextReceipt,
        File(
            "context_receipts",
            about="the contents of each served context. `served` is the context itself, while it is stored",
            fields="context_id session_id query_hash refs tokens trimmed text_hash served created_at",
            columns=(session_of("session"), ServedContext("served", "sealed")),
            missing={"served": None},
            is_restored=False,
        ),
        derived_from=("session", "refs"),
        not_retracted="it records what was served, and models don't receive it",
        erase=erase.forget_contexts,
    ),
    Provenance(
        Job,
        File(
            "jobs",
            about="background jobs",
            fields="job_id process session_id status attempts queued_at finished_at result error",
            columns=(session_of("session"),),
            is_restored=False,
        ),
        is_rewritten=True,
    ),
    Provenance(
        Retraction,
        File(
            "retractions",
            about="retractions and their reasons. Retracted turns have `retracted_at`",
            fields="retraction_id session_id sequences reason result created_at undone_at",
            columns=(session_of("session"),),
            is_restored=False,
        ),
        not_retracted=RECORDS_RETRACTIONS,
    ),
    Provenance(RetractedItem, not_exported="its content is no longer believed", not_retracted=RECORDS_RETRACTIONS),
    Provenance(EngineCall, person="job__user", not_exported=NO_TEXT, not_retracted=NO_TEXT, erase=erase.unlink_calls),
    Provenance(
        KeptExchange,
        not_exported="it contains an invalid answer, and an engine's input whose turns are in the export",
        not_retracted="it records a failed call, and models don't receive it",
    ),
    Provenance(ServedLine, not_exported=NO_TEXT, not_retracted=NO_TEXT),
    Provenance(
        WebhookDelivery,
        person="event__user_pk",
        not_exported="it records a notification about an event, and the event is in the export",
        not_retracted="the notification is built from the event when it is sent",
    ),
    Provenance(
        Vocabulary,
        processes=(CountWords.name,),
        not_exported=IS_DERIVED,
        not_retracted=IS_DERIVED,
        imported=queue_word_count,
    ),
    Provenance(
        Word,
        person="vocabulary__user",
        derived_from=("vocabulary",),
        processes=(CountWords.name,),
        not_exported=IS_DERIVED,
        not_retracted=IS_DERIVED,
        erase=erase.forget_words,
        count_others=erase.count_words_of,
    ),
    *(
        Provenance(
            model,
            derived_from=("source",),
            processes=(Embed.name,),
            not_exported=IS_DERIVED,
            not_retracted="it is removed with its text",
            imported=ask,
        )
        for model, ask in (
            (FactEmbedding, embed_imported_memories),
            (MomentEmbedding, None),
            (ItemEmbedding, None),
            (TurnEmbedding, embed_imported_turns),
        )
    ),
)
