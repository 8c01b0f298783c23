"""A database with data for every page of the admin."""

import uuid
from collections import Counter
from datetime import UTC, date, datetime
from importlib import import_module
from importlib.util import find_spec

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from memoryproject.settings import CONF
from memoryproject.status.site_state import RESTARTED, Change, State
from moments_app.context.receipts import StoredContext, StoredLayer, StoredLine
from moments_app.engines.interface import CallRecord, Exchange
from moments_app.models import (
    Circuit,
    ContextReceipt,
    EmbeddingModel,
    EngineCall,
    EntityLink,
    FailureGroup,
    Job,
    KnownPerson,
    MemoryAtom,
    MemoryStream,
    StoredItem,
    Summary,
    WebhookEndpoint,
)
from moments_app.models.atom import content_hash
from moments_app.moments.build import BuildMoments
from moments_app.provenance.correct import correct, replacement_request
from moments_app.provenance.retract import retract
from moments_app.streams.add_atoms import add_atoms
from moments_app.streams.release import extend, release
from sessions_app.models import (
    ApiKey,
    Archive,
    DailyLimit,
    DailyUsage,
    Event,
    Session,
    UserProfile,
)
from sessions_app.models.daily_limit import today
from sessions_app.models.session import new_context_id
from sessions_app.people.erase import ErasureResult
from sessions_app.security.staff import invite
from sessions_app.transcript.append import NewMessage, append
from tests.support.entities import make_entity
from tests.support.jobs import build
from tests.support.streams import fold, note, shard, written
from tests.support.transcript import talk

TOOL_TURN = NewMessage(
    role="tool",
    content="14 degrees, rain",
    tool_name="weather",
    payload={"tool_call_id": "call-1"},
    metadata={"client": "web"},
    created_at=datetime(2026, 3, 2, 9, 30, tzinfo=UTC),
)


def furnish() -> Session:
    """Create at least one row for every page. The first row of each table has the most to show.

    Returns:
        The session of the rows.
    """
    ada = UserProfile.objects.ensure("ada")
    session = talk(ada, 60)
    append(ada, session.session_id, [TOOL_TURN])
    job = build(session)
    UserProfile.objects.filter(pk=ada.pk).update(metadata={"x": 1})
    _remember(session, job)
    _fail(session)
    _correct(ada)
    _retract(ada)
    written(ada, summary="Ada throws pots.", interests=["kilns"])
    _operate(session)
    for extra in CONF.extras:
        if find_spec(module := f"{__name__}_{extra}"):
            import_module(module).furnish(session)
    job = Job.objects.request(BuildMoments.name, session, requested_by="operator:eve", force=True)
    session.refresh_from_db()
    return session


def _release(stream: MemoryStream, session: Session, job: Job) -> None:
    """Create two candidates of one person: one is pending and has a match of another person, the other was released."""
    turns = list(session.messages.turns().values_list("pk", flat=True)[:2])
    learned = {"user": session.user, "is_candidate": True, "source_session": session, "source_message_ids": turns}
    for text in ("Say the unit with each number.", "Ask before you order."):
        atom = stream.atoms.create(atom_type="observation", content=text, job=job, **learned)
    fields = {"atom_type": "observation", "is_candidate": True, "content": "Say the unit with each number."}
    stream.atoms.create(user=UserProfile.objects.ensure("bo"), **fields)
    made = release(atom, "Orders need a question first.", actor="operator:eve", note="Twice asked for.")
    extend(made, actor="operator:eve")


def _remember(session: Session, job: Job) -> None:
    """Create summaries, a shard with a consolidated text, entities, and a receipt."""
    ada, at = session.user, timezone.now()
    first = Summary.objects.create(
        session=session,
        user=ada,
        status="completed",
        start_sequence=0,
        end_sequence=9,
        text="They spoke of the kiln.",
        facts=[{"fact": "The kiln is old.", "message_indexes": [1]}],
        source_message_ids=[1, 2],
        engine="extractive",
        job=job,
        completed_at=at,
    )
    Summary.objects.create(session=session, user=ada, start_sequence=10, end_sequence=19, base=first)
    stream = shard("repairs", session.agent_id, consolidation_prompt="Keep what helps.", pinned_content="Be kind.")
    _release(stream, session, job)
    for number in range(6):
        note(stream, f"The jack of key {number} sticks.", source_session=session, job=job)
    fold(stream)
    note(stream, "Felt wears out.", "fact", source_session=session)
    task = make_entity(ada, "Order felt", body="Red.", source_session=session)
    goal = make_entity(ada, "A kiln that works", "goal")
    EntityLink.objects.create(user=ada, from_entity=task, to_entity=goal)
    ida = KnownPerson.objects.create(user=ada, key="ida", name="Ida", aliases=["Ida Holm"], relationship="sister")
    own = MemoryStream.objects.ensure_of_person(ada, "default")
    note(own, "Ada's sister Ida tunes pianos.", "fact", about=ida)
    item = {"application": ada.application, "namespace": "tools\x1f", "value": {"text": "Two felt picks."}}
    for owner in (ada, None):
        StoredItem.objects.create(user=owner, key="felt", text="Two felt picks.", **item)
    context_id = new_context_id(ada, session.session_id)
    kept = [StoredLayer("user", 12, [StoredLine("Ada repairs pianos.", 12, ada.uri, "the profile", time=at)])]
    ContextReceipt.objects.create(
        context_id=context_id,
        user=ada,
        session=session,
        refs={"user": [ada.uri], "hot_turns": [f"rem://sessions/{session.session_id}/messages/3"]},
        tokens={"user": 12, "hot_turns": 20},
        trimmed=[{"layer": "moments", "count": 2, "reason": "cut", "tokens": 30}],
        text_hash="0" * 64,
        after_sequence=session.last_sequence,
        sealed=StoredContext("Is it in tune?", "xml", "query", 900, 32, False, kept, "…").sealed(context_id),
    )
    said = [NewMessage("user", "Is it in tune?"), NewMessage("assistant", "Not yet.")]
    append(ada, session.session_id, said, context_id=context_id)


def _correct(user: UserProfile) -> None:
    """Create a fact that ended, two that may contradict each other, a corrected one, and one to correct."""
    stream = MemoryStream.objects.ensure_of_person(user, "default")
    for day, said in enumerate(("lives in Oslo", "moved to Bergen", "'s dog is called Rex", "'s dog is called Max")):
        text = f"Ada{'' if said[0] == chr(39) else ' '}{said}."
        atom = MemoryAtom(stream=stream, user=user, atom_type="fact", content=text, content_hash=content_hash(text))
        atom.formed_at = datetime(2026, 3, 3 + day, tzinfo=UTC)
        with transaction.atomic():
            add_atoms(stream, [atom], requested_by="test")
    rex = MemoryAtom.objects.get(content="Ada's dog is called Rex.")
    correct(rex, replacement_request("Ada's dog is called Roy."), requested_by="operator:eve")


def _fail(session: Session) -> None:
    """Create a failed job with its call, and a task of the queue."""
    job = Job.objects.create(
        process=BuildMoments.name,
        session=session,
        user=session.user,
        status=Job.Status.FAILED,
        error="The model is away.",
        attempts=5,
        requested_by="append",
        finished_at=timezone.now(),
    )
    said = Exchange("What did they speak of?", "I would rather not say.")
    call = CallRecord("moments", "gpt", 900, error_kind="timeout", error="Timed out.", exchange=said)
    EngineCall.objects.record(call, job=job)
    Job.objects.filter(pk=job.pk).update(failure=FailureGroup.objects.get(kind="timeout"))


def _retract(user: UserProfile) -> None:
    other = talk(user, 40, session_id="planted")
    build(other)
    retract(other, [3], reason="Somebody else wrote it.", requested_by="operator:eve")


def _operate(session: Session) -> None:
    """Create other rows: a login with a history, a key, an archive, an embedding model, an event."""
    eve = User.objects.create_user("eve", "eve@example.com", first_name="Eve", last_name="Moreau", is_staff=True)
    LogEntry.objects.log_actions(eve.pk, [session], CHANGE, change_message="Asked for moments.", single_object=True)
    invite("ida", role="viewer", actor="operator:eve")
    key, _ = ApiKey.objects.issue("my-app", user=session.user)
    DailyLimit.objects.create(key=key, requests=1_000, model_calls=3, usd=0)
    DailyUsage.objects.create(key=key, day=today(), requests=1_200, model_calls=3, usd="0.5")
    EmbeddingModel.objects.create(name="text-embedding", dimensions=64)
    Change(State.DEGRADED, "", timezone.now(), ["1 job has been waiting for an unavailable provider."]).record()
    Event.objects.create(type=RESTARTED, actor="run", payload={"told": "The worker ended with status -9."})
    circuit = Circuit.objects.create(
        engine="openai:gpt", work="text", state="open", holds_all=True, reason="timeout", error="No answer."
    )
    Job.objects.request("embed", session, requested_by="append")
    Job.objects.filter(process="embed", status=Job.Status.QUEUED).update(circuit=circuit, error=circuit.why)
    Event.objects.create(type="legal_hold_set", actor="operator:eve", payload={"session_id": session.session_id})
    webhook = WebhookEndpoint.objects.create(name="Billing", url="https://example.com/hook", events=["user_erased"])
    receipt = ErasureResult(
        uuid.uuid4(), Counter(sessions=3), Counter(sessions=0, moments=0), Counter(events=2)
    ).receipt
    erased = Event.objects.create(type="user_erased", actor="operator:eve", payload=receipt)
    webhook.deliveries.filter(event=erased).update(attempts=2, error="answered with status 500")
    Archive.objects.create(
        session=session,
        user=session.user,
        month=date(2026, 2, 1),
        name=f"{session.user_id}/{session.pk}/2026-02.jsonl.gz",
        first_sequence=0,
        last_sequence=9,
        turn_count=10,
        byte_count=2_048,
        sha256="0" * 64,
    )
