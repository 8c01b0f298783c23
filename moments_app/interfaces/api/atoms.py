"""Facts and observations of a stream over REST."""

import uuid
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.interfaces.api.streams import BaseStreamViewSet
from moments_app.models import MemoryAtom, MemoryStream
from moments_app.models.atom import SHARED_NAMES_NOBODY, MemoryAtomQuerySet, content_hash
from moments_app.streams.add_atoms import add_atoms, owner_columns
from sessions_app.api.fields import (
    AwareDateTimeField,
    BooleanField,
    ExternalIdField,
    PersonQuery,
    PublicIdField,
    WordsField,
)
from sessions_app.api.pagination import PageQuery
from sessions_app.api.permissions import key_of
from sessions_app.models import UserProfile
from sessions_app.refusals import Refusal
from sessions_app.transcript.append import IdTaken

RELATED_MAX = 50


class AtomsQuery(PageQuery):
    atom_type = serializers.ChoiceField(choices=MemoryAtom.Type.choices, required=False)
    state = serializers.ChoiceField(choices=MemoryAtom.State.choices, default=MemoryAtom.State.ACTIVE)
    related_user = PublicIdField(
        required=False, help_text="Return only items that name this `user_id` in `related_users`."
    )


class AtomInput(PersonQuery):
    """An item that the client writes directly."""

    atom_type = serializers.ChoiceField(choices=MemoryAtom.Type.choices)
    content = WordsField(max_length=4_000)
    external_id = ExternalIdField(
        help_text="Your own id for the item. If a request is repeated with the same id, the item is not added again.",
    )
    formed_at = AwareDateTimeField(required=False)
    is_pinned = BooleanField(
        default=False,
        help_text="Pin the item. Jobs never change or consolidate a pinned item, and every context includes it.",
    )
    related_users = serializers.ListField(
        child=PublicIdField(),
        required=False,
        max_length=RELATED_MAX,
        help_text="The `user_id`s of other people whom the item is about. These people don't get access to "
        "the item. A shared item can't have `related_users`.",
    )


class AtomAnswer(serializers.ModelSerializer[MemoryAtom]):
    """A fact or observation."""

    session_id = serializers.CharField(source="source_session.session_id", default=None, allow_null=True)
    rag_indexed = serializers.BooleanField(default=False, help_text="Whether searches by meaning can find the item.")
    is_shared = serializers.SerializerMethodField(
        help_text="Whether all users of the shard can see the item. If false, only one person can see the item "
        "until an operator releases it."
    )

    class Meta:
        model = MemoryAtom
        fields = (
            "atom_id",
            "uri",
            "external_id",
            "atom_type",
            "content",
            "state",
            "formed_at",
            "is_pinned",
            "is_shared",
            "related_users",
            "rag_indexed",
            "access_count",
            "last_accessed_at",
            "session_id",
            "engine",
            "written_by",
            "created_at",
        )

    def get_is_shared(self, atom: MemoryAtom) -> bool:
        return atom.user_id is None


class SharedItemNamesPeople(Refusal):
    """The item would be shared, but its `related_users` name people."""

    code = "names_people"


@extend_schema_view(
    list=extend_schema(
        description="Return facts and observations, newest first. For a shard: shared items, and items learned "
        "from this person."
    )
)
class AtomViewSet(ListModelMixin, BaseStreamViewSet[MemoryAtom]):
    serializer_class = AtomAnswer
    inputs = {"list": AtomsQuery, "create": AtomInput}
    answers = {"create": {201: AtomAnswer, 200: AtomAnswer}}
    refuses = {"create": [SharedItemNamesPeople, IdTaken]}
    filters = {"state": "state", "atom_type": "atom_type"}

    def get_queryset(self) -> MemoryAtomQuerySet:
        seen: MemoryAtomQuerySet = self.stream().atoms.visible_to(self.person)
        if "related_user" in self.validated_data:
            seen = seen.filter(user=self.person, related_users__contains=[self.validated_data["related_user"]])
        return seen.with_rag_indexed().select_related("source_session").newest_first()

    def create(self, request: Request, stream_id: uuid.UUID) -> Response:
        """Add a fact or observation directly.

        If the stream already has an item with the same `external_id`, or a current item with the same text, return
        that item with 200. In a shard, only this person sees the new item until an operator releases it. If the key
        has the scope `admin`, the new item is shared immediately.
        """
        stream = self.changeable()
        shares = stream.is_shard and key_of(request).allows("admin")
        person = None if shares else self.found_person
        atom, is_new = add_atom(stream, person, self.validated_data, requested_by=self.actor)
        return self.created(atom, is_new=is_new)


def add_atom(
    stream: MemoryStream, person: UserProfile | None, values: dict[str, Any], *, requested_by: str
) -> tuple[MemoryAtom, bool]:
    """Add an atom to a stream of the person or to a shard. Return the new or existing atom, and whether it is new.

    Args:
        person: the owner; None if the item is shared by all users of the shard.
        values: validated by `AtomInput`.
        requested_by: the writer, who is also recorded as the requester of jobs that become due.

    Raises:
        SharedItemNamesPeople: the item would be shared, and its `related_users` name people.
        IdTaken: an item with this `external_id` has different content.
    """
    if person is None and stream.is_shard and values.get("related_users"):
        raise SharedItemNamesPeople(SHARED_NAMES_NOBODY)
    digest = content_hash(values["content"])
    owner = owner_columns(stream, person) if person else {}
    atom = MemoryAtom(stream=stream, content_hash=digest, written_by=requested_by, **owner, **values)
    # Retry if the lookup fails: the item that prevented the insert may have been absorbed in the meantime.
    while (present := _with_same_external_id(atom) or _with_same_text(atom, person)) is None:
        if add_atoms(stream, [atom], requested_by=requested_by):
            return atom, True
    return present, False


def _with_same_external_id(atom: MemoryAtom) -> MemoryAtom | None:
    """Return the item with the same `external_id`, in any state. Raise `IdTaken` if its content differs."""
    if not atom.external_id:
        return None
    sent = MemoryAtom.objects.filter(stream=atom.stream_id, user=atom.user_id, external_id=atom.external_id).first()
    if sent and (sent.atom_type, sent.content_hash) != (atom.atom_type, atom.content_hash):
        raise IdTaken("This external_id already belongs to an item with different content.")
    return sent


def _with_same_text(atom: MemoryAtom, person: UserProfile | None) -> MemoryAtom | None:
    same = atom.stream.atoms.active().visible_to(person).filter(content_hash=atom.content_hash)
    return same.order_by("is_candidate").first()
