"""The item store over REST.

An address is a namespace and a key. A request with a `user_id` accesses the items of this user. A request without one
accesses the items of the application that belong to no user. A user's key only accesses the items of this user.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.jobs.process import queue_embedding
from moments_app.models import StoredItem
from moments_app.models.stored_item import (
    END,
    KEY_MAX,
    LABELS_MAX,
    NAMESPACE_MAX,
    TEXT_MAX,
    TTL_MAX,
    TTL_MIN,
    Condition,
    StoredItemQuerySet,
    labels,
    stored,
    text_of,
)
from moments_app.recall.query import with_vector
from moments_app.recall.request import RecallRequest
from moments_app.recall.search_items import MAX_HITS, list_namespaces, search_items
from sessions_app.api.fields import (
    CONTRADICTORY,
    BooleanField,
    IntegerField,
    JsonObjectField,
    NumberField,
    PersonQuery,
    StrictSerializer,
    TextField,
    WordsField,
)
from sessions_app.api.pagination import PAGE_MAX
from sessions_app.api.permissions import key_of
from sessions_app.api.viewsets import PersonViewSet
from sessions_app.lexemes import QUERY_MAX_CHARS

ITEMS_MAX = 100  # maximum items in a request
CONDITIONS_MAX = 20  # maximum conditions in a filter
COMPARISONS = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")


class LabelField(TextField):
    pattern = rf"^[^\x00{END}]*$".replace(END, r"\x1f")
    default_error_messages = {"end": "A label can't contain the character U+001F."}

    def __init__(self) -> None:
        super().__init__(max_length=NAMESPACE_MAX)

    def to_internal_value(self, data: Any) -> str:
        label = super().to_internal_value(data)
        if END in label:
            self.fail("end")
        return label


class NamespaceField(serializers.ListField):
    """The labels of a namespace, outermost first."""

    default_error_messages = {"size": f"The labels have more than {NAMESPACE_MAX} characters in total."}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=LabelField(), max_length=LABELS_MAX, **kwargs)

    def to_internal_value(self, data: Any) -> list[str]:
        found: list[str] = super().to_internal_value(data)
        if sum(map(len, found)) > NAMESPACE_MAX:
            raise serializers.ValidationError(self.error_messages["size"], CONTRADICTORY)
        return found


class FilterField(JsonObjectField):
    """Conditions on fields of the value, such as `{"status": "open", "days": {"$gte": 3}}`."""

    default_error_messages = {"size": f"The filter has more than {CONDITIONS_MAX} conditions."}

    def to_internal_value(self, data: Any) -> Any:
        conditions = self._conditions([], super().to_internal_value(data))
        found = list(islice(conditions, CONDITIONS_MAX + 1))
        if len(found) > CONDITIONS_MAX:
            raise serializers.ValidationError(self.error_messages["size"], CONTRADICTORY)
        return found

    def _conditions(self, path: list[str], wanted: Any) -> Iterator[Condition]:
        if not isinstance(wanted, dict) or (path and not wanted):
            yield path, "$eq", wanted
            return
        for name, value in wanted.items():
            if not (path and name.startswith("$")):
                yield from self._conditions([*path, name], value)
            elif name in COMPARISONS:
                yield path, name, value
            else:
                known = ", ".join(COMPARISONS)
                message = f"{'.'.join(path)}: unknown comparison {name}. The comparisons are {known}."
                raise serializers.ValidationError(message, CONTRADICTORY)


class ItemAddress(StrictSerializer):
    """The namespace and the key of an item."""

    namespace = NamespaceField(min_length=1)
    key = TextField(max_length=KEY_MAX)


class ItemInput(ItemAddress):
    """An item to store."""

    value = JsonObjectField()
    text = TextField(
        max_length=TEXT_MAX,
        allow_blank=True,
        required=False,
        help_text="The text that is searched. Default: all texts in the value. If the text is blank, searches don't "
        "find the item.",
    )
    ttl = NumberField(
        min_value=TTL_MIN,
        max_value=TTL_MAX,
        allow_null=True,
        default=None,
        help_text="Minutes from the latest write or read until the item expires. Default: the item doesn't expire.",
    )


class ItemsInput(PersonQuery):
    """Items to store."""

    items: serializers.ListSerializer[Any] = serializers.ListSerializer(
        child=ItemInput(), min_length=1, max_length=ITEMS_MAX
    )


class AddressesInput(PersonQuery):
    """Addresses of items."""

    items: serializers.ListSerializer[Any] = serializers.ListSerializer(
        child=ItemAddress(), min_length=1, max_length=ITEMS_MAX
    )


class RefreshesTtl(StrictSerializer):
    """Whether reading the items restarts their time to live."""

    refresh_ttl = BooleanField(default=True, help_text="Whether to restart the time to live of the returned items.")


class WantedItems(RefreshesTtl, AddressesInput):
    """Addresses of the items to return."""


class ItemsPage(PersonQuery):
    limit = IntegerField(min_value=1, max_value=PAGE_MAX, default=50)
    offset = IntegerField(min_value=0, max_value=1_000_000, default=0)


class ItemsQuery(RefreshesTtl, ItemsPage):
    """The items to return."""

    namespace = NamespaceField(default=list, help_text="Return only items whose namespace starts with these labels.")
    query = WordsField(
        max_length=QUERY_MAX_CHARS,
        required=False,
        help_text=f"Return only the {MAX_HITS} items whose text matches the query best by words and by meaning, best "
        "first. Default: all items, ordered by namespace and key.",
    )
    filter = FilterField(
        required=False,
        help_text="Return only items whose value has these fields. A field is compared for equality, or by an object "
        f"with some of the comparisons {', '.join(f'`{name}`' for name in COMPARISONS)}.",
    )
    after = ItemAddress(
        required=False,
        help_text="Address of the last item on the previous page. `after` is faster than a large `offset`.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "after" in attrs and attrs["offset"]:
            raise serializers.ValidationError({"offset": "Use after or offset, not both."}, CONTRADICTORY)
        if "after" in attrs and "query" in attrs:
            raise serializers.ValidationError({"after": "With a query, use offset instead of after."}, CONTRADICTORY)
        if "query" in attrs and attrs["offset"] > MAX_HITS:
            message = f"A query finds at most {MAX_HITS} items, so offset can't be larger."
            raise serializers.ValidationError({"offset": message}, CONTRADICTORY)
        return attrs


class NamespacesQuery(ItemsPage):
    """The namespaces to return."""

    prefix = NamespaceField(
        default=list, help_text="Return only namespaces that start with these labels. `*` stands for any label."
    )
    suffix = NamespaceField(
        default=list, help_text="Return only namespaces that end with these labels. `*` stands for any label."
    )
    max_depth = IntegerField(
        min_value=1,
        max_value=LABELS_MAX,
        default=LABELS_MAX,
        help_text="Maximum number of labels in a returned namespace. Longer namespaces are shortened.",
    )


class ItemAnswer(serializers.ModelSerializer[StoredItem]):
    """A stored item."""

    namespace = serializers.ListField(source="labels", child=serializers.CharField())

    class Meta:
        model = StoredItem
        fields: tuple[str, ...] = ("namespace", "key", "value", "ttl", "created_at", "updated_at")


class FetchedItems(serializers.Serializer[Any]):
    """Stored items. Missing items are left out."""

    items = ItemAnswer(many=True)


class FoundItem(ItemAnswer):
    """A stored item, and how well it matches the query."""

    score = serializers.FloatField(
        default=None,
        allow_null=True,
        help_text="How well the item matches the query, compared with the other items of this response. Null if the "
        "request has no query.",
    )

    class Meta(ItemAnswer.Meta):
        fields = (*ItemAnswer.Meta.fields, "score")


class ItemsAnswer(serializers.Serializer[Any]):
    """A page of stored items."""

    items = FoundItem(many=True)
    has_more = serializers.BooleanField()
    degraded = serializers.BooleanField(help_text="True if only words were searched, because the query has no vector.")


class NamespacesAnswer(serializers.Serializer[Any]):
    """A page of namespaces."""

    namespaces = serializers.ListField(child=serializers.ListField(child=serializers.CharField()))
    has_more = serializers.BooleanField()


class StoredAnswer(serializers.Serializer[Any]):
    """The number of items that were stored."""

    stored = serializers.IntegerField()


class DeletedAnswer(serializers.Serializer[Any]):
    """The number of items that were deleted."""

    deleted = serializers.IntegerField()


class ItemViewSet(PersonViewSet[StoredItem]):
    """The item store. All calls are POST, because an address can be too long for a URL."""

    inputs = {"create": ItemsInput, "retrieve": WantedItems, "destroy": AddressesInput, "search": ItemsQuery}
    answers = {"create": StoredAnswer, "retrieve": FetchedItems, "destroy": DeletedAnswer, "search": ItemsAnswer}
    scopes = {"retrieve": "read", "search": "read", "list": "read"}
    creates_person = ("create",)
    own_transaction = ("search",)
    person_optional = (*inputs, "list")

    def get_queryset(self) -> StoredItemQuerySet:
        """Return the person's items. Without a person in the request, return the application's own items."""
        if self.person is None and not self.is_application_wide:
            return StoredItem.objects.none()
        return StoredItem.objects.owned_by(self.person, self.application).live().defer("text", "search_vector")

    @property
    def is_application_wide(self) -> bool:
        """True if the request is about the application's own items, which belong to no person."""
        return self.requested_user_id is None and key_of(self.request).user_id is None

    def create(self, request: Request) -> Response:
        """Store items. An item replaces the item with the same namespace and key."""
        owner = {"user": self.person, "application_id": self.application}
        items = [StoredItem(**owner, **_columns(item)) for item in self.validated_data["items"]]
        count = StoredItem.objects.put(items)
        if self.person and any(item.text for item in items):
            queue_embedding(self.actor, user_id=self.person.pk)
        return Response({"stored": count})

    def retrieve(self, request: Request) -> Response:
        """Return the items at some addresses, in the order of the addresses."""
        found = {(item.namespace, item.key): item for item in self.at_addresses()}
        wanted = [(stored(item["namespace"]), item["key"]) for item in self.validated_data["items"]]
        items = [found[address] for address in dict.fromkeys(wanted) if address in found]
        self.note_read(items)
        return self.answer({"items": items})

    def destroy(self, request: Request) -> Response:
        """Delete the items at some addresses."""
        # sorted as in `put`, to prevent deadlocks
        rows = self.at_addresses().select_for_update(of=("self",)).in_order()
        own = StoredItem.objects.filter(pk__in=list(rows.values_list("pk", flat=True))).only("pk")
        _rows, by_table = own.delete()
        return self.answer({"deleted": by_table.get(StoredItem._meta.label, 0)})

    def search(self, request: Request) -> Response:
        """Search or list items."""
        values = self.validated_data
        query = RecallRequest(values["query"]) if "query" in values else None
        if query and not self.is_application_wide:  # the application's own items have no vectors
            query = with_vector(query)
        with self.transaction():
            if query:
                items, has_more = self.page_of(self.matching(query))
            else:
                rows = self.get_queryset().within(values["namespace"]).satisfying(values.get("filter", [])).in_order()
                items, has_more = self.page_of(rows.after(**values["after"]) if "after" in values else rows)
            self.note_read(items)
        degraded = query is not None and query.degraded
        return self.answer({"items": items, "has_more": has_more, "degraded": degraded})

    def note_read(self, items: Sequence[StoredItem]) -> None:
        """Restart the time to live of these items, unless `refresh_ttl` is false."""
        if self.validated_data["refresh_ttl"]:
            StoredItem.objects.restart_ttl(items)

    def matching(self, query: RecallRequest) -> Sequence[StoredItem]:
        """Return the items that match the query, best first, from the first page up to the requested one."""
        values = self.validated_data
        if self.person is None and not self.is_application_wide:
            return []
        scores = search_items(
            self.person,
            self.application,
            values["namespace"],
            query.text,
            vector=query.searched_vector,
            conditions=values.get("filter", []),
            most=values["offset"] + values["limit"] + 1,
        )
        items = self.get_queryset().in_bulk(scores)
        for pk, item in items.items():
            item.score = scores[pk]
        return [items[pk] for pk in scores if pk in items]

    def at_addresses(self) -> StoredItemQuerySet:
        addresses = [(item["namespace"], item["key"]) for item in self.validated_data["items"]]
        return self.get_queryset().at(addresses)

    def page_of(self, rows: Any) -> tuple[Sequence[Any], bool]:
        """Return the rows of the requested page, and whether there are more."""
        limit, offset = self.validated_data["limit"], self.validated_data["offset"]
        found = list(rows[offset : offset + limit + 1])
        return found[:limit], len(found) > limit


class ItemNamespaceViewSet(ItemViewSet):
    inputs = {"list": NamespacesQuery}
    answers = {"list": NamespacesAnswer}

    def list(self, request: Request) -> Response:
        """Return the namespaces of the items, in order."""
        values = self.validated_data
        if self.person is None and not self.is_application_wide:
            return self.answer({"namespaces": [], "has_more": False})
        found, has_more = self.page_of(
            list_namespaces(
                self.person,
                self.application,
                prefix=values["prefix"],
                suffix=values["suffix"],
                max_depth=values["max_depth"],
                most=values["offset"] + values["limit"] + 1,
            )
        )
        return self.answer({"namespaces": [labels(namespace) for namespace in found], "has_more": has_more})


def _columns(item: Mapping[str, Any]) -> dict[str, Any]:
    text = item["text"] if "text" in item else text_of(item["value"])
    values = {name: item[name] for name in ("key", "value", "ttl")}
    return {"namespace": stored(item["namespace"]), "text": text, **values}
