"""Prompts over REST: the prompts of the key's application, their versions, and the active version.

An application's prompt replaces the global one once it has an active version. A key may read both, and may change
only the prompts of its application. If there is only one application, its keys may also change the global prompts.
"""

from contextlib import AbstractContextManager

from django.db import transaction
from django.db.models import F, Q, QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.models import PromptResource, PromptVersion
from moments_app.models.prompt import NewerVersion
from moments_app.prompts import BLANK_PROMPT, MAX_CHARS, URI_PREFIX, NotApproved, activate_version, normalize_newlines
from sessions_app.api.fields import (
    CONTRADICTORY,
    BooleanField,
    IntegerField,
    PublicIdField,
    StrictSerializer,
    TextField,
    WordsField,
)
from sessions_app.api.pagination import AnyPageQuery
from sessions_app.api.permissions import HasAdminScope, IsServiceKey
from sessions_app.api.viewsets import ApiViewSet, M, one_or_404
from sessions_app.database.sql import insert_if_missing
from sessions_app.limited_operators import unlimited
from sessions_app.models import Application
from sessions_app.refusals import Conflict

NUMBER_MAX = 2**31 - 1  # maximum number of a version
NAME_MAX = 255 - len(URI_PREFIX)


class PromptExists(Conflict):
    """The application already has a prompt with this name."""

    code = "already_there"


class PromptIsSiteWide(Conflict):
    """The prompt is site-wide, and there are several applications. Create a prompt with the same name instead."""

    code = "prompt_of_site"


class PromptsQuery(AnyPageQuery):
    purpose = serializers.ChoiceField(choices=PromptResource.Purpose.choices, required=False)


class VersionInput(StrictSerializer):
    """A new version of a prompt."""

    content = WordsField(max_length=MAX_CHARS, error_messages={"blank": BLANK_PROMPT})
    note = TextField(max_length=255, allow_blank=True, default="", help_text="What changed, and why.")
    after = IntegerField(
        min_value=0,
        max_value=NUMBER_MAX,
        required=False,
        help_text="Number of the latest version that the author has seen. If a newer version exists, the "
        "request fails with 409 (`newer_version`).",
    )
    activate = BooleanField(default=False, help_text="Activate the version immediately.")


class PromptInput(StrictSerializer):
    """A new prompt with its first version."""

    name = PublicIdField(
        max_length=NAME_MAX, help_text="Name of the prompt. The prompt's address is `rem://prompts/{name}`."
    )
    purpose = serializers.ChoiceField(
        choices=PromptResource.Purpose.choices,
        required=False,
        help_text="What the prompt is used for. Default: the purpose of the site-wide prompt with the same name. "
        "If there is none, the default is the prompt's name.",
    )
    title = TextField(
        max_length=255,
        required=False,
        help_text="Title of the prompt. Default: the title of the site-wide prompt with the same name. "
        "If there is none, the default is the prompt's name.",
    )
    content = WordsField(max_length=MAX_CHARS, error_messages={"blank": BLANK_PROMPT})
    note = TextField(max_length=255, allow_blank=True, default="", help_text="Why this version was written.")
    activate = BooleanField(default=False, help_text="Activate the version immediately.")


class ActivateInput(StrictSerializer):
    """The version to activate."""

    version = IntegerField(min_value=1, max_value=NUMBER_MAX)


class PromptAnswer(serializers.ModelSerializer[PromptResource]):
    """A prompt and its active version."""

    name = serializers.SerializerMethodField()
    title = serializers.CharField(source="name")
    is_site = serializers.SerializerMethodField(
        help_text="Whether the prompt is site-wide. A site-wide prompt applies to each application without a "
        "prompt of the same name."
    )
    active_version = serializers.IntegerField(
        source="active_version.number",
        default=None,
        allow_null=True,
        help_text="Number of the active version. Null if no version is active. In this case, "
        "the site-wide prompt is used.",
    )
    previous_version = serializers.IntegerField(
        source="previous_version.number",
        default=None,
        allow_null=True,
        help_text="Number of the version that was active before. To roll back, activate this version.",
    )

    class Meta:
        model = PromptResource
        fields: tuple[str, ...] = (
            "name",
            "uri",
            "title",
            "purpose",
            "is_site",
            "active_version",
            "active_since",
            "previous_version",
        )

    def get_name(self, prompt: PromptResource) -> str:
        return prompt.uri.removeprefix(URI_PREFIX)

    def get_is_site(self, prompt: PromptResource) -> bool:
        return prompt.application_id is None


class PromptDetail(PromptAnswer):
    """A prompt with its active text."""

    content = serializers.CharField(
        source="active_version.content",
        default=None,
        allow_null=True,
        help_text="Text of the active version. Null if no version is active.",
    )
    newest_version = serializers.SerializerMethodField()

    class Meta(PromptAnswer.Meta):
        fields = (*PromptAnswer.Meta.fields, "content", "newest_version")

    def get_newest_version(self, prompt: PromptResource) -> int:
        newest = prompt.versions.first()
        return newest.number if newest else 0


class VersionRow(serializers.ModelSerializer[PromptVersion]):
    """A version without its text."""

    version = serializers.IntegerField(source="number")
    is_active = serializers.SerializerMethodField(help_text="Whether jobs currently use this version.")
    is_tried = serializers.BooleanField(
        help_text="Whether an operator has tried the version on sample sessions or streams."
    )

    class Meta:
        model = PromptVersion
        fields: tuple[str, ...] = ("version", "note", "created_by", "created_at", "is_active", "is_tried")

    def get_is_active(self, version: PromptVersion) -> bool:
        return version.pk == version.resource.active_version_id


class VersionAnswer(VersionRow):
    """A version with its text."""

    class Meta(VersionRow.Meta):
        fields = (*VersionRow.Meta.fields, "content")


class BasePromptViewSet(ApiViewSet[M]):
    """A resource of the prompts of the key's application. Prompts belong to no person."""

    permission_classes = (HasAdminScope, IsServiceKey)

    def acting(self) -> AbstractContextManager[None]:
        return unlimited()

    def prompts(self) -> QuerySet[PromptResource]:
        """Return one prompt per URI: the application's own, or the global one if it has none."""
        seen = Q(application=self.application) | Q(application=None)
        own_first = F("application").asc(nulls_last=True)
        found = PromptResource.objects.filter(seen, uri__startswith=URI_PREFIX).order_by("uri", own_first)
        return found.distinct("uri").select_related("active_version", "previous_version")

    def prompt(self, name: str) -> PromptResource:
        return one_or_404(self.prompts(), uri=f"{URI_PREFIX}{name}")

    def changeable(self, name: str) -> PromptResource:
        """Return a prompt that the key may change, or raise `PromptIsSiteWide`."""
        prompt = self.prompt(name)
        if prompt.application_id is None and self.owner() is not None:
            raise PromptIsSiteWide(f"{prompt.uri} is site-wide. Use POST prompts to create one for your application.")
        return prompt

    def owner(self) -> int | None:
        """Return the application that owns new prompts.

        Return None if there is only one application, because new prompts are then global.
        """
        return self.application if Application.objects.are_several() else None

    def add_version(self, prompt: PromptResource) -> PromptVersion:
        """Add the version from the request, and activate it if requested."""
        text = normalize_newlines(self.validated_data["content"])
        note, after = self.validated_data["note"], self.validated_data.get("after")
        version = prompt.add_version(text, created_by=self.actor, note=note, after=after)
        if self.validated_data["activate"]:
            activate_version(version, by=self.actor)
        return version


@extend_schema_view(
    list=extend_schema(
        description="Return the prompts of the key's application, ordered by address. If the application has no "
        "prompt for an address, the site-wide prompt is returned."
    ),
    retrieve=extend_schema(description="Return a prompt with its active text."),
)
class PromptViewSet(ListModelMixin, RetrieveModelMixin, BasePromptViewSet[PromptResource]):
    serializer_class = PromptDetail
    lookup_url_kwarg = "name"
    lookup_value_converter = "public_id"
    inputs = {"list": PromptsQuery, "create": PromptInput, "activate": ActivateInput}
    answers = {"list": PromptAnswer, "create": {201: PromptDetail}}
    refuses = {"create": [PromptExists, NotApproved], "activate": [NotApproved, PromptIsSiteWide]}
    filters = {"purpose": "purpose"}

    def get_queryset(self) -> QuerySet[PromptResource]:
        return self.prompts()

    def get_object(self) -> PromptResource:
        return self.prompt(self.kwargs["name"])

    @transaction.atomic
    def create(self, request: Request) -> Response:
        """Create a prompt with its first version.

        Once a version is active, the prompt replaces the site-wide prompt with the same name.
        """
        prompt = self._new_prompt()
        if not insert_if_missing(prompt):
            raise PromptExists(f"Your application already has a prompt {prompt.uri}.")
        self.add_version(prompt)
        return self.created(self.prompt(self.validated_data["name"]), is_new=True)

    def _new_prompt(self) -> PromptResource:
        """Return an unsaved prompt for the request. Fields missing in the request are copied from the global prompt."""
        name, purpose = self.validated_data["name"], self.validated_data.get("purpose")
        uri = f"{URI_PREFIX}{name}"
        site = PromptResource.objects.filter(uri=uri, application=None).first()
        known = site.purpose if site else name
        purpose = purpose or known
        if purpose not in PromptResource.Purpose.values or (site and purpose != known):
            raise serializers.ValidationError(
                {"purpose": "Send a known purpose. If a site-wide prompt has this name, send its purpose, or none."},
                CONTRADICTORY,
            )
        title = self.validated_data.get("title") or (site.name if site else name)
        return PromptResource(uri=uri, purpose=purpose, name=title, application_id=self.owner())

    @action(detail=True, methods=["post"])
    @transaction.atomic
    def activate(self, request: Request, name: str) -> Response:
        """Activate a version, starting with the next job. To roll back, activate `previous_version`."""
        prompt = self.changeable(name)
        activate_version(one_or_404(prompt.versions.all(), number=self.validated_data["version"]), by=self.actor)
        return self.answer(self.prompt(name))


@extend_schema_view(
    list=extend_schema(description="Return the versions of a prompt without their texts, newest first."),
    retrieve=extend_schema(description="Return a version with its text."),
)
class PromptVersionViewSet(ListModelMixin, RetrieveModelMixin, BasePromptViewSet[PromptVersion]):
    serializer_class = VersionAnswer
    lookup_field, lookup_url_kwarg = "number", "version"
    lookup_value_converter = "int"
    inputs = {"create": VersionInput}
    answers = {"list": VersionRow, "create": {201: VersionAnswer}}
    refuses = {"create": [NewerVersion, NotApproved, PromptIsSiteWide]}

    def get_queryset(self) -> QuerySet[PromptVersion]:
        versions = self.prompt(self.kwargs["name"]).versions.select_related("resource")
        return versions.defer("content") if self.action == "list" else versions

    @transaction.atomic
    def create(self, request: Request, name: str) -> Response:
        """Add a version. `activate` also activates it, starting with the next job; if that fails, nothing is added."""
        number = self.add_version(self.changeable(name)).number
        return self.created(one_or_404(self.get_queryset(), number=number), is_new=True)
