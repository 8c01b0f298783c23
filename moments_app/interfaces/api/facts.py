"""A person's facts over REST: current facts, facts at a time, and the sources of each."""

import uuid
from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.models import Correction, MemoryAtom, StatementChange
from moments_app.models.atom import MemoryAtomQuerySet
from moments_app.models.known_person import SELF
from moments_app.provenance.correct import (
    TEXT_KINDS,
    CannotCorrect,
    CorrectionRequest,
    correct,
    end_request,
    preview,
    replacement_request,
    undo_correction,
    withdrawal_request,
)
from sessions_app.api.fields import (
    CONTRADICTORY,
    AsOfField,
    AwareDateTimeField,
    BooleanField,
    IntegerField,
    PersonQuery,
    PublicIdField,
    TextField,
    UUIDField,
    WordsField,
)
from sessions_app.api.messages import MessageAnswer
from sessions_app.api.pagination import PAGE_MAX
from sessions_app.api.viewsets import PersonViewSet, one_or_404
from sessions_app.models import Message, UserProfile
from sessions_app.retention.read_archived import with_text
from sessions_app.transcript.load import LoadedMessage

HOLDING, ENDED, ALL = "holding", "ended", "all"
SOURCES_MAX = 100
RELATED = ("source_session", "replaced_by", "about")  # related rows that a response includes


class AboutField(PublicIdField):
    """The person whom facts are about."""

    def __init__(self) -> None:
        whom = f"Send `{SELF}` for the user, or the `key` of another person (`GET users/{{user_id}}/people`)."
        super().__init__(required=False, help_text=f"Return only facts about this person. {whom}")


class FactsQuery(PersonQuery):
    state = serializers.ChoiceField(
        choices=(HOLDING, ENDED, ALL),
        default=HOLDING,
        help_text="`holding`: facts that are still true. If several have the same words, only the latest is listed. "
        "`ended`: facts that are no longer true. `all`: both. Ignored if `as_of` is set.",
    )
    as_of = AsOfField(
        required=False,
        help_text="Return the facts that were known to be true at this time. A date means the end of that day.",
    )
    atom_type = serializers.ChoiceField(
        choices=MemoryAtom.Type.choices,
        required=False,
        help_text="Type of the items to return. Default: facts and observations, including consolidated observations.",
    )
    kind = serializers.ChoiceField(
        choices=MemoryAtom.Kind.choices, required=False, help_text="What kind of information the fact contains."
    )
    about = AboutField()
    subject = TextField(max_length=255, required=False, help_text="The person or thing that the fact describes.")
    attribute = TextField(
        max_length=64,
        required=False,
        help_text="The attribute that the fact states, such as `home`, `work`, `name`, `age`, "
        "`relationship` or `daughter`.",
    )
    limit = IntegerField(min_value=1, max_value=PAGE_MAX, default=50)
    after = UUIDField(required=False, help_text="Id of the last fact on the previous page.")


class FactAnswer(serializers.ModelSerializer[MemoryAtom]):
    """A fact about a person, and when it was true."""

    fact_id = serializers.UUIDField(source="atom_id")
    about = serializers.CharField(
        source="about.key",
        default=None,
        allow_null=True,
        help_text="The `key` of the known person whom the fact is about. Null if the fact is not about a known person.",
    )
    said_at = serializers.DateTimeField(source="formed_at")
    session_id = serializers.CharField(source="source_session.session_id", default=None, allow_null=True)
    replaced_by = serializers.UUIDField(
        source="replaced_by.atom_id",
        default=None,
        allow_null=True,
        help_text="The id of the fact that replaced this fact.",
    )
    sources = serializers.IntegerField(source="source_count", help_text="Number of source turns.")

    class Meta:
        model = MemoryAtom
        fields = (
            "fact_id",
            "uri",
            "atom_type",
            "kind",
            "content",
            "about",
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
            "is_wrong": {"help_text": "True if a correction established that the fact was never true."},
            "corrected_at": {
                "help_text": "When this fact replaced a wrong fact. Null if this fact is not a correction."
            },
            "ended_at": {"help_text": "When it became known that the fact had ended. Null if the fact has not ended."},
        }


class FactList(serializers.Serializer[Any]):
    """Facts, latest first."""

    facts = FactAnswer(many=True)
    has_more = serializers.BooleanField()


class FactSource(MessageAnswer):
    """A source turn of a fact."""

    session_id = serializers.CharField()


class FactSources(serializers.Serializer[Any]):
    """The source turns of a fact in order, without deleted ones."""

    sources = FactSource(many=True)


class HistoryQuery(PersonQuery):
    limit = IntegerField(min_value=1, max_value=PAGE_MAX, default=50)
    after = UUIDField(required=False, help_text="Id of the last change on the previous page.")


class ChangeOfFact(serializers.ModelSerializer[StatementChange]):
    """A change of a fact."""

    before = serializers.JSONField(source="shown", help_text="Values of the changed fields before the change.")

    class Meta:
        model = StatementChange
        fields = ("change_id", "action", "before", "actor", "reason", "created_at")


class FactHistory(serializers.Serializer[Any]):
    """Changes of a fact, newest first."""

    history = ChangeOfFact(many=True)
    has_more = serializers.BooleanField()


def facts_of(user: UserProfile | None, values: dict[str, Any]) -> dict[str, Any]:
    """Return a page of a person's facts as serialized by `FactList`, with at most two SQL statements.

    Args:
        values: validated by `FactsQuery`.
    """
    facts = _in_state(MemoryAtom.objects.statements_of(user), values).select_related(*RELATED)
    facts = facts.about_known(values["about"]) if "about" in values else facts
    for name in ("atom_type", "kind", "subject", "attribute"):
        facts = facts.filter(**{name: values[name]}) if name in values else facts
    if "as_of" not in values and values["state"] == HOLDING:
        facts = facts.without_repeats()
    if after := values.get("after"):
        facts = facts.older_than(one_or_404(MemoryAtom.objects.for_user(user), atom_id=after))
    found = list(facts.defer("search_vector").newest_first()[: values["limit"] + 1])
    page = {"facts": found[: values["limit"]], "has_more": len(found) > values["limit"]}
    return dict(FactList(page).data)


def _in_state(facts: MemoryAtomQuerySet, values: dict[str, Any]) -> MemoryAtomQuerySet:
    if "as_of" in values:
        return facts.as_of(values["as_of"])
    if values["state"] == HOLDING:
        return facts.current()
    return facts.filter(state=MemoryAtom.State.ENDED) if values["state"] == ENDED else facts


def fact_or_404(user: UserProfile | None, fact_id: uuid.UUID) -> MemoryAtom:
    """Return a person's fact.

    Raises:
        NotFound: the fact doesn't exist, or belongs to another person.
    """
    facts = MemoryAtom.objects.for_user(user).select_related(*RELATED, "stream", "user")
    return one_or_404(facts.defer("search_vector"), atom_id=fact_id)


class FactPatch(PersonQuery):
    """A correction or the end of a fact."""

    content = WordsField(
        max_length=4_000, required=False, help_text="The correct text. Send this field if the old text was never true."
    )
    state = serializers.ChoiceField(
        choices=(ENDED,),
        required=False,
        help_text="Send `ended` if the fact was true in the past, but is no longer true.",
    )
    valid_until = AwareDateTimeField(required=False, help_text="When the fact stopped being true. Default: now.")
    preview = BooleanField(
        default=False, help_text="If true, nothing is changed. The response lists the matching items."
    )
    leave = serializers.ListField(
        child=TextField(max_length=1_000),
        default=list,
        max_length=500,
        help_text="Addresses (`ref`) of matching items that should stay unchanged.",
    )

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        """Require either a new text or an end, but not both."""
        if ("content" in values) == ("state" in values):
            raise serializers.ValidationError({"content": "Send either content or state=ended."}, CONTRADICTORY)
        if "valid_until" in values and "state" not in values:
            raise serializers.ValidationError({"valid_until": "valid_until needs state=ended."}, CONTRADICTORY)
        return values


class WithdrawQuery(PersonQuery):
    preview = BooleanField(
        default=False, help_text="If true, nothing is changed. The response lists the matching items."
    )


class ChangeAnswer(serializers.Serializer[Any]):
    """A matching text, before and after the change."""

    kind = serializers.ChoiceField(choices=TEXT_KINDS)
    ref = serializers.CharField()
    field = serializers.CharField()
    before = serializers.JSONField(
        help_text="The text before the change, or a list of texts. For a turn, only the incorrect words."
    )
    after = serializers.JSONField(
        help_text="The text after the change, or a list of texts. Blank if no text is left, or if the fact has ended."
    )


class CorrectionAnswer(serializers.ModelSerializer[Correction]):
    """A corrected, ended or withdrawn fact, with all matching items."""

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


def change_in(values: dict[str, Any]) -> CorrectionRequest:
    return replacement_request(values["content"]) if "content" in values else end_request(values.get("valid_until"))


def change_fact(
    fact: MemoryAtom, request: CorrectionRequest, values: dict[str, Any], *, requested_by: str
) -> dict[str, Any]:
    """Correct, end or withdraw a fact, or preview the changes. Return the result as serialized by `CorrectionAnswer`.

    Args:
        fact: a fact of the acting person.
        values: validated by `FactPatch` or `WithdrawQuery`.

    Raises:
        CannotCorrect: the fact can't be corrected in its current state.
    """
    if values["preview"]:
        return _preview(fact, request)
    correction = correct(fact, request, requested_by=requested_by, leave=values.get("leave", ()))
    return dict(CorrectionAnswer(correction).data)


def correction_or_404(user: UserProfile | None, correction_id: uuid.UUID) -> Correction:
    """Return a person's correction.

    Raises:
        NotFound: the correction doesn't exist, or belongs to another person.
    """
    return one_or_404(Correction.objects.for_user(user).select_related("fact"), correction_id=correction_id)


def _preview(fact: MemoryAtom, request: CorrectionRequest) -> dict[str, Any]:
    shown = Correction(
        fact=fact, kind=request.kind, before=fact.content, after=request.after, valid_until=request.valid_until
    )
    shown.changes = [asdict(change) for change in preview(fact, request)]
    return dict(CorrectionAnswer(shown).data) | {"correction_id": None, "created_at": None}


@extend_schema_view(
    list=extend_schema(description="Return the changes that corrected, ended or withdrew facts, newest first."),
    retrieve=extend_schema(description="Return a correction with its changes."),
)
class CorrectionViewSet(ListModelMixin, RetrieveModelMixin, PersonViewSet[Correction]):
    queryset = Correction.objects.select_related("fact").newest_first()
    serializer_class = CorrectionAnswer
    lookup_field = "correction_id"
    lookup_value_converter = "uuid"
    refuses = {"undo": [CannotCorrect]}

    @action(detail=True, methods=["post"])
    def undo(self, request: Request, correction_id: uuid.UUID) -> Response:
        """Undo a correction and restore what it changed. Later changes by people are kept."""
        return self.answer(undo_correction(self.get_object(), requested_by=self.actor))


@extend_schema_view(retrieve=extend_schema(description="Return a fact, whether it is still true or not."))
class FactViewSet(RetrieveModelMixin, PersonViewSet[MemoryAtom]):
    serializer_class = FactAnswer
    lookup_url_kwarg = "fact_id"
    lookup_value_converter = "uuid"
    inputs = {"list": FactsQuery, "partial_update": FactPatch, "destroy": WithdrawQuery, "history": HistoryQuery}
    answers = {
        "list": FactList,
        "partial_update": CorrectionAnswer,
        "destroy": CorrectionAnswer,
        "sources": FactSources,
        "history": FactHistory,
    }
    refuses = {"partial_update": [CannotCorrect], "destroy": [CannotCorrect]}

    def get_object(self) -> MemoryAtom:
        return fact_or_404(self.person, self.kwargs["fact_id"])

    def list(self, request: Request) -> Response:
        """Return facts about a person, latest first: current ones, ended ones, or those true at a given time."""
        return Response(facts_of(self.person, self.validated_data))

    @extend_schema(operation_id="facts_correct")
    def partial_update(self, request: Request, fact_id: uuid.UUID) -> Response:
        """Correct or end a fact, with all matching items. With `preview`, only return the matching items.

        A correction also changes the matching facts, moments, summaries, digests and stream texts, and updates the
        profile. Turns stay unchanged, but their incorrect words are marked, so that these words are not extracted
        again. The end of a fact changes only facts and stream texts. Moments, summaries and digests describe the time
        before the end, so they stay correct.
        """
        return self._changed(change_in(self.validated_data))

    @extend_schema(operation_id="facts_withdraw")
    def destroy(self, request: Request, fact_id: uuid.UUID) -> Response:
        """Withdraw a fact that was never true, with all matching items. This can be undone."""
        return self._changed(withdrawal_request())

    @extend_schema(operation_id="sources_list")
    @action(detail=True)
    def sources(self, request: Request, fact_id: uuid.UUID) -> Response:
        """Return the source turns of a fact, at most 100."""
        return Response({"sources": sources_of(self.found_person, self.get_object())})

    @extend_schema(operation_id="history_list")
    @action(detail=True)
    def history(self, request: Request, fact_id: uuid.UUID) -> Response:
        """Return the changes of a fact, newest first: who changed it, when and why."""
        changes = self.get_object().history.newest_first()
        if after := self.validated_data.get("after"):
            changes = changes.filter(pk__lt=one_or_404(changes, change_id=after).pk)
        limit = self.validated_data["limit"]
        found = list(changes[: limit + 1])
        return self.answer({"history": found[:limit], "has_more": len(found) > limit})

    def _changed(self, request: CorrectionRequest) -> Response:
        return Response(change_fact(self.get_object(), request, self.validated_data, requested_by=self.actor))


def sources_of(user: UserProfile, fact: MemoryAtom) -> list[dict[str, Any]]:
    turns = Message.objects.for_user(user).filter(pk__in=fact.source_message_ids[:SOURCES_MAX])
    found = list(turns.select_related("session", "moment").in_order())
    for turn in found:
        turn.moment_key = turn.moment.key if turn.moment else None  # type: ignore[attr-defined]
    both = zip(found, with_text(user, found), strict=True)
    return [
        LoadedMessage.from_message(shown)._asdict() | {"session_id": turn.session.session_id} for turn, shown in both
    ]
