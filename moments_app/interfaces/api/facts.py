"""A person's facts over REST: what holds, what held at a time, and where each comes from."""

import uuid
from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.interfaces.api.as_of import AsOfField
from moments_app.models import Correction, MemoryAtom
from moments_app.models.atom import MemoryAtomQuerySet
from moments_app.provenance.correct import (
    CHANGED,
    CannotCorrect,
    Order,
    correct,
    correcting,
    ending,
    preview,
    undo_correction,
    withdrawing,
)
from sessions_app.api.fields import (
    CONTRADICTORY,
    AwareDateTimeField,
    BooleanField,
    IntegerField,
    TextField,
    UUIDField,
)
from sessions_app.api.messages import MessageAnswer
from sessions_app.api.pagination import PAGE_MAX
from sessions_app.api.person import PersonQuery
from sessions_app.api.viewsets import PersonViewSet, one_or_404
from sessions_app.models import Message, UserProfile
from sessions_app.retention.read_archived import with_text
from sessions_app.transcript.load import LoadedMessage

HOLDING, ENDED, ALL = "holding", "ended", "all"
SOURCES_MAX = 100


class FactsQuery(PersonQuery):
    """Filters of a list of facts."""

    state = serializers.ChoiceField(
        choices=(HOLDING, ENDED, ALL),
        default=HOLDING,
        help_text="Beside `as_of` it says nothing: then what held is listed.",
    )
    as_of = AsOfField(
        required=False,
        help_text="What was known then to hold: said by then, and nobody had said that it ended. A date is its end.",
    )
    atom_type = serializers.ChoiceField(
        choices=MemoryAtom.Type.choices,
        required=False,
        help_text="Left out: facts, and observations that wait or were consolidated.",
    )
    subject = TextField(max_length=255, required=False, help_text="Whose attribute.")
    attribute = TextField(
        max_length=64, required=False, help_text="`home`, `work`, `name`, `age`, `relationship`, `daughter`, …"
    )
    limit = IntegerField(min_value=1, max_value=PAGE_MAX, default=50)
    after = UUIDField(required=False, help_text="The id of the last fact of the previous page.")


class FactAnswer(serializers.ModelSerializer[MemoryAtom]):
    """Something that was said of a person, and when it held."""

    fact_id = serializers.UUIDField(source="atom_id")
    said_at = serializers.DateTimeField(source="formed_at")
    session_id = serializers.CharField(source="source_session.session_id", default=None, allow_null=True)
    replaced_by = serializers.UUIDField(
        source="replaced_by.atom_id", default=None, allow_null=True, help_text="The fact that ended it."
    )
    sources = serializers.IntegerField(source="source_count", help_text="Number of turns that it comes from.")

    class Meta:
        model = MemoryAtom
        fields = (
            "fact_id",
            "uri",
            "atom_type",
            "content",
            "subject",
            "attribute",
            "value",
            "said_at",
            "valid_from",
            "valid_until",
            "state",
            "is_wrong",
            "replaced_by",
            "ended_at",
            "corrected_at",
            "confidence",
            "is_pinned",
            "session_id",
            "sources",
            "engine",
            "written_by",
            "created_at",
        )
        extra_kwargs = {
            "is_wrong": {"help_text": "It was corrected: it never held."},
            "corrected_at": {"help_text": "When it took the place of one that never held."},
            "ended_at": {"help_text": "When it was said, or decided, that it no longer holds."},
        }


class FactList(serializers.Serializer[Any]):
    """Facts, what was said last first."""

    facts = FactAnswer(many=True)
    has_more = serializers.BooleanField()


class FactSource(MessageAnswer):
    """A turn that a fact comes from."""

    session_id = serializers.CharField()


class FactSources(serializers.Serializer[Any]):
    """The turns that a fact comes from, in their order; those that are gone are left out."""

    sources = FactSource(many=True)


def facts_of(user: UserProfile | None, values: dict[str, Any]) -> dict[str, Any]:
    """Return a page of a person's facts as `FactList` describes it; two statements at most.

    Args:
        user: whose facts.
        values: validated by `FactsQuery`.
    """
    facts = _in_time(MemoryAtom.objects.statements_of(user), values).select_related("source_session", "replaced_by")
    for name in ("atom_type", "subject", "attribute"):
        facts = facts.filter(**{name: values[name]}) if name in values else facts
    if after := values.get("after"):
        facts = facts.said_before(one_or_404(MemoryAtom.objects.filter(user=user), atom_id=after))
    found = list(facts.defer("search_vector").newest_first()[: values["limit"] + 1])
    page = {"facts": found[: values["limit"]], "has_more": len(found) > values["limit"]}
    return dict(FactList(page).data)


def _in_time(facts: MemoryAtomQuerySet, values: dict[str, Any]) -> MemoryAtomQuerySet:
    if "as_of" in values:
        return facts.as_of(values["as_of"])
    if values["state"] == HOLDING:
        return facts.holding()
    return facts.filter(state=MemoryAtom.State.ENDED) if values["state"] == ENDED else facts


def fact_or_404(user: UserProfile | None, fact_id: uuid.UUID) -> MemoryAtom:
    """Return a person's fact.

    Raises:
        NotFound: there is none, or it is somebody else's.
    """
    facts = MemoryAtom.objects.filter(user=user).select_related("source_session", "replaced_by", "stream", "user")
    return one_or_404(facts.defer("search_vector"), atom_id=fact_id)


class FactPatch(PersonQuery):
    """What is right in place of a fact, or that it ended."""

    content = TextField(max_length=4_000, required=False, help_text="What is right: what it said never held.")
    state = serializers.ChoiceField(choices=(ENDED,), required=False, help_text="It held, and holds no longer.")
    valid_until = AwareDateTimeField(required=False, help_text="Until when it held. Left out: until now.")
    preview = BooleanField(default=False, help_text="Only show what says the same; nothing is changed.")
    leave = serializers.ListField(
        child=TextField(max_length=1_000),
        default=list,
        max_length=500,
        help_text="Addresses (`ref`) of what is left as it is, though it says the same.",
    )

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        """Refuse a patch that says neither what is right nor that it ended, or both."""
        if ("content" in values) == ("state" in values):
            raise serializers.ValidationError({"content": "Say content, or state ended."}, CONTRADICTORY)
        if "valid_until" in values and "state" not in values:
            raise serializers.ValidationError({"valid_until": "Only what ended has an end."}, CONTRADICTORY)
        return values


class WithdrawQuery(PersonQuery):
    """How a fact is withdrawn."""

    preview = BooleanField(default=False, help_text="Only show what says the same; nothing is changed.")


class ChangeAnswer(serializers.Serializer[Any]):
    """A text that says the same, before and after."""

    kind = serializers.ChoiceField(choices=CHANGED)
    ref = serializers.CharField()
    field = serializers.CharField()
    before = serializers.JSONField(help_text="The text, or a list of short ones; of a turn the words that are wrong.")
    after = serializers.JSONField(help_text="Blank: nothing is left, or it holds no longer.")


class CorrectionAnswer(serializers.ModelSerializer[Correction]):
    """A fact corrected, ended or withdrawn, with all that said the same."""

    fact_id = serializers.UUIDField(source="fact.atom_id", default=None, allow_null=True)
    changes = ChangeAnswer(many=True)

    class Meta:
        model = Correction
        fields = (
            "correction_id",
            "fact_id",
            "kind",
            "before",
            "after",
            "valid_until",
            "changes",
            "requested_by",
            "created_at",
            "undone_at",
        )
        extra_kwargs = {
            "correction_id": {"allow_null": True, "help_text": "Null in a preview."},
            "created_at": {"allow_null": True},
        }


def order_of(values: dict[str, Any]) -> Order:
    """Return what a valid patch asks for."""
    return correcting(values["content"]) if "content" in values else ending(values.get("valid_until"))


def corrected(fact: MemoryAtom, order: Order, values: dict[str, Any], *, requested_by: str) -> dict[str, Any]:
    """Carry out an order, or show what it would change; return that as `CorrectionAnswer` describes it.

    Args:
        fact: of the acting person.
        order: what is to be done.
        values: validated by `FactPatch` or `WithdrawQuery`.
        requested_by: the caller.

    Raises:
        CannotCorrect: the fact can't be corrected as things are.
    """
    if values["preview"]:
        return _previewed(fact, order)
    made = correct(fact, order, requested_by=requested_by, leave=values.get("leave", ()))
    return dict(CorrectionAnswer(made).data)


def correction_or_404(user: UserProfile | None, correction_id: uuid.UUID) -> Correction:
    """Return a person's correction.

    Raises:
        NotFound: there is none, or it is somebody else's.
    """
    return one_or_404(Correction.objects.for_user(user).select_related("fact"), correction_id=correction_id)


def _previewed(fact: MemoryAtom, order: Order) -> dict[str, Any]:
    shown = Correction(
        fact=fact, kind=order.kind, before=fact.content, after=order.after, valid_until=order.valid_until
    )
    shown.changes = [asdict(change) for change in preview(fact, order)]
    return dict(CorrectionAnswer(shown).data) | {"correction_id": None, "created_at": None}


@extend_schema_view(
    list=extend_schema(description="Corrections, ends and withdrawals of facts, newest first."),
    retrieve=extend_schema(description="The correction with its changes."),
)
class CorrectionViewSet(ListModelMixin, RetrieveModelMixin, PersonViewSet[Correction]):
    """A person's corrections."""

    queryset = Correction.objects.select_related("fact").newest_first()
    serializer_class = CorrectionAnswer
    lookup_field = "correction_id"
    lookup_value_converter = "uuid"
    refuses = {"undo": [CannotCorrect]}

    @action(detail=True, methods=["post"])
    def undo(self, request: Request, correction_id: uuid.UUID) -> Response:
        """Undoes a correction and restores what it changed. Later changes by people are kept."""
        return self.answer(undo_correction(self.get_object(), requested_by=self.actor))


@extend_schema_view(retrieve=extend_schema(description="The fact, whether valid or not."))
class FactViewSet(RetrieveModelMixin, PersonViewSet[MemoryAtom]):
    """A person's facts."""

    serializer_class = FactAnswer
    lookup_url_kwarg = "fact_id"
    lookup_value_converter = "uuid"
    inputs = {"list": FactsQuery, "partial_update": FactPatch, "destroy": WithdrawQuery}
    answers = {
        "list": FactList,
        "partial_update": CorrectionAnswer,
        "destroy": CorrectionAnswer,
        "sources": FactSources,
    }
    refuses = {"partial_update": [CannotCorrect], "destroy": [CannotCorrect]}

    def get_object(self) -> MemoryAtom:
        return fact_or_404(self.person, self.kwargs["fact_id"])

    def list(self, request: Request) -> Response:
        """What was said of a person, the latest first: what holds, what ended, or what held at a time."""
        return Response(facts_of(self.person, self.validated_data))

    @extend_schema(operation_id="facts_correct")
    def partial_update(self, request: Request, fact_id: uuid.UUID) -> Response:
        """Corrects or ends a fact, and with it all that says the same; `preview` only shows what that is.

        Other facts, moments, the profile and texts of streams are changed. Turns stay as they were said and are marked:
        nothing wrong is made of them again. An ending leaves moments and turns alone, for they tell of their time.
        """
        return self._changed(order_of(self.validated_data))

    @extend_schema(operation_id="facts_withdraw")
    def destroy(self, request: Request, fact_id: uuid.UUID) -> Response:
        """Withdraws a fact that never held, and with it all that says the same; it can be undone."""
        return self._changed(withdrawing())

    @extend_schema(operation_id="sources_list")
    @action(detail=True)
    def sources(self, request: Request, fact_id: uuid.UUID) -> Response:
        """The turns that a fact comes from, word for word; at most a hundred."""
        return Response({"sources": sources_of(self.found_person, self.get_object())})

    def _changed(self, order: Order) -> Response:
        return Response(corrected(self.get_object(), order, self.validated_data, requested_by=self.actor))


def sources_of(user: UserProfile, fact: MemoryAtom) -> list[dict[str, Any]]:
    """Return the turns that a fact comes from as `FactSource` describes them."""
    turns = Message.objects.for_user(user).filter(pk__in=fact.source_message_ids[:SOURCES_MAX])
    found = list(turns.select_related("session", "moment").in_order())
    for turn in found:
        turn.moment_key = turn.moment.key if turn.moment else None  # type: ignore[attr-defined]
    both = zip(found, with_text(user, found), strict=True)
    return [LoadedMessage.of(shown)._asdict() | {"session_id": turn.session.session_id} for turn, shown in both]
