"""Prompts over REST: what is in force for the key's application, its versions, and which of them counts.

An application's prompt takes the place of the site's once a version of it is in force. Keys read both, and change what
is their application's alone; where there is but one application, the site's are its own.
"""

from functools import partial

from django.db import transaction
from django.db.models import F, Q, QuerySet
from rest_framework import serializers
from rest_framework.response import Response

from moments_app.models import PromptResource, PromptTrial, PromptVersion
from moments_app.models.prompt import NewerVersion
from moments_app.prompts import ADDRESS
from moments_app.prompts.versions import MAX_CHARS, NO_WORD, NotApproved, put_in_force, with_line_breaks
from sessions_app.api.fields import (
    CONTRADICTORY,
    BooleanField,
    IntegerField,
    PublicIdField,
    StrictSerializer,
    TextField,
    WordsField,
)
from sessions_app.api.pages import AnyPageQuery, PageAnswer
from sessions_app.api.permissions import HasScope, IsOfService
from sessions_app.api.person_view import PersonView, created, one_or_404, operation
from sessions_app.daily_limits import count_values
from sessions_app.insert import insert_unless_there
from sessions_app.models import Application
from sessions_app.refusals import Conflict

NUMBER_MAX = 2**31 - 1  # of a version
NAME_MAX = 255 - len(ADDRESS)


class PromptThere(Conflict):
    """The application has a prompt of that name."""

    code = "already_there"


class PromptOfSite(Conflict):
    """The prompt is the site's, and there are several applications: make one of that name for yours."""

    code = "prompt_of_site"


class PromptsQuery(AnyPageQuery):
    """Filters of the list of prompts."""

    purpose = serializers.ChoiceField(choices=PromptResource.Purpose.choices, required=False)


class VersionInput(StrictSerializer):
    """A new version of a prompt."""

    content = WordsField(max_length=MAX_CHARS, error_messages={"blank": NO_WORD})
    note = TextField(max_length=255, allow_blank=True, default="", help_text="What changed, and why.")
    after = IntegerField(
        min_value=0,
        max_value=NUMBER_MAX,
        required=False,
        help_text="The newest version that its writer has seen. If there is a newer one: 409 (`newer_version`).",
    )
    activate = BooleanField(default=False, help_text="Put it in force at once.")


class PromptInput(StrictSerializer):
    """A new prompt with its first version."""

    name = PublicIdField(max_length=NAME_MAX, help_text="Its address is `rem://prompts/{name}`.")
    purpose = serializers.ChoiceField(
        choices=PromptResource.Purpose.choices,
        required=False,
        help_text="Left out: that of the site's prompt of this name, or the name itself.",
    )
    title = TextField(max_length=255, required=False, help_text="Left out: that of the site's, or the name.")
    content = WordsField(max_length=MAX_CHARS, error_messages={"blank": NO_WORD})
    note = TextField(max_length=255, allow_blank=True, default="", help_text="What it is for.")
    activate = BooleanField(default=False, help_text="Put it in force at once.")


class ActivateInput(StrictSerializer):
    """Which version is to count."""

    version = IntegerField(min_value=1, max_value=NUMBER_MAX)


class PromptAnswer(serializers.ModelSerializer[PromptResource]):
    """A prompt, and which of its versions is in force."""

    name = serializers.SerializerMethodField()
    title = serializers.CharField(source="name")
    is_site = serializers.SerializerMethodField(help_text="Every application's that has none of its own.")
    active_version = serializers.IntegerField(
        source="active_version.number",
        default=None,
        allow_null=True,
        help_text="Null: none is, and an application's own gives way to the site's.",
    )
    previous_version = serializers.IntegerField(
        source="previous_version.number",
        default=None,
        allow_null=True,
        help_text="In force before; to put it in force is to roll back.",
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
        return prompt.uri.removeprefix(ADDRESS)

    def get_is_site(self, prompt: PromptResource) -> bool:
        return prompt.application_id is None


class PromptDetail(PromptAnswer):
    """A prompt with its text in force."""

    content = serializers.CharField(
        source="active_version.content", default=None, allow_null=True, help_text="In force; null: no version is."
    )
    newest_version = serializers.SerializerMethodField()

    class Meta(PromptAnswer.Meta):
        fields = (*PromptAnswer.Meta.fields, "content", "newest_version")

    def get_newest_version(self, prompt: PromptResource) -> int:
        newest = prompt.versions.first()
        return newest.number if newest else 0


class PromptList(PageAnswer):
    """A page of prompts."""

    prompts = PromptAnswer(many=True)


class VersionRow(serializers.ModelSerializer[PromptVersion]):
    """A version without its text."""

    version = serializers.IntegerField(source="number")
    is_active = serializers.SerializerMethodField(help_text="It is in force.")
    is_tried = serializers.BooleanField(help_text="An operator tried it over a sample.")

    class Meta:
        model = PromptVersion
        fields: tuple[str, ...] = ("version", "note", "created_by", "created_at", "is_active", "is_tried")

    def get_is_active(self, version: PromptVersion) -> bool:
        return version.pk == version.resource.active_version_id


class VersionAnswer(VersionRow):
    """A version with its text."""

    class Meta(VersionRow.Meta):
        fields = (*VersionRow.Meta.fields, "content")


class VersionList(PageAnswer):
    """A page of a prompt's versions."""

    versions = VersionRow(many=True)


class PromptsViewBase(PersonView):
    """A call about the prompts of the key's application: they are no person's, and concern everybody."""

    permission_classes = (HasScope, IsOfService)
    scopes = {"GET": "admin", "POST": "admin"}

    def prompts(self) -> QuerySet[PromptResource]:
        """Return what prompts the application has, each its own or else the site's."""
        seen = Q(application=self.application) | Q(application=None)
        own_first = F("application").asc(nulls_last=True)
        found = PromptResource.objects.filter(seen, uri__startswith=ADDRESS).order_by("uri", own_first)
        return found.distinct("uri").select_related("active_version", "previous_version")

    def prompt(self, name: str) -> PromptResource:
        """Return the application's prompt of this name, or else the site's."""
        return one_or_404(self.prompts(), uri=f"{ADDRESS}{name}")

    def changeable(self, name: str) -> PromptResource:
        """Return a prompt that the key may change.

        Raises:
            PromptOfSite: it is not the application's alone.
        """
        prompt = self.prompt(name)
        if prompt.application_id is None and self.owner() is not None:
            raise PromptOfSite(f"{prompt.uri} is the site's: POST prompts makes one for your application.")
        return prompt

    def owner(self) -> int | None:
        """Return whose prompts the key makes; None for the site's, where nobody else has them."""
        return self.application if Application.objects.are_several() else None

    def versions(self, prompt: PromptResource) -> QuerySet[PromptVersion]:
        """Return a prompt's versions, newest first."""
        found: QuerySet[PromptVersion] = PromptTrial.objects.tried_versions(prompt.versions.select_related("resource"))
        return found

    def added(self, prompt: PromptResource) -> PromptVersion:
        """Add the version that the body has, and put it in force where it says so."""
        text = with_line_breaks(self.body["content"])
        note, after = self.body["note"], self.body.get("after")
        count_values(text, note)
        version = prompt.add_version(text, created_by=self.actor, note=note, after=after)
        if self.body["activate"]:
            put_in_force(version, by=self.actor)
        return version


# Of a call that is about nobody, and opens its own transaction.
about_prompts = partial(operation, needs_person=False, in_transaction=False, sees_all=True)


class PromptsView(PromptsViewBase):
    """The prompts of an application."""

    @about_prompts(PromptList, operation_id="prompts_list", query=PromptsQuery)
    def get(self) -> Response:
        """Prompts of the key's application, each its own or else the site's, by address."""
        return self.page(PromptList, self.filtered(self.prompts(), purpose="purpose"))

    @about_prompts(
        {201: PromptDetail}, operation_id="prompts_create", body=PromptInput, refuses=[PromptThere, NotApproved]
    )
    @transaction.atomic
    def post(self) -> Response:
        """Makes a prompt with its first version, which takes the place of the site's once it is in force."""
        prompt = self._drafted()
        if not insert_unless_there(prompt):
            raise PromptThere(f"There is a prompt {prompt.uri}.")
        self.added(prompt)
        return created(PromptDetail(self.prompt(self.body["name"])), is_new=True)

    def _drafted(self) -> PromptResource:
        """Return the prompt as the body has it; what it leaves out is as the site's.

        Raises:
            ValidationError: its purpose is not known, or another than that of the site's.
        """
        uri, purpose = f"{ADDRESS}{self.body['name']}", self.body.get("purpose")
        site = PromptResource.objects.filter(uri=uri, application=None).first()
        known = site.purpose if site else self.body["name"]
        purpose = purpose or known
        if purpose not in PromptResource.Purpose.values or (site and purpose != known):
            raise serializers.ValidationError({"purpose": "Say what it is for; the site's has its own."}, CONTRADICTORY)
        title = self.body.get("title") or (site.name if site else self.body["name"])
        return PromptResource(uri=uri, purpose=purpose, name=title, application_id=self.owner())


class PromptView(PromptsViewBase):
    """One prompt."""

    @about_prompts(PromptDetail, operation_id="prompts_get")
    def get(self, name: str) -> Response:
        """The prompt with the text in force."""
        return Response(PromptDetail(self.prompt(name)).data)


class PromptVersionsView(PromptsViewBase):
    """The versions of a prompt."""

    @about_prompts(VersionList, operation_id="promptversions_list", query=AnyPageQuery)
    def get(self, name: str) -> Response:
        """Versions of a prompt without their texts, newest first."""
        return self.page(VersionList, self.versions(self.prompt(name)).defer("content"))

    @about_prompts(
        {201: VersionAnswer},
        operation_id="promptversions_create",
        body=VersionInput,
        refuses=[NewerVersion, NotApproved, PromptOfSite],
    )
    @transaction.atomic
    def post(self, name: str) -> Response:
        """Adds a version; with `activate` it counts from the next job on, or nothing is added."""
        prompt = self.changeable(name)
        number = self.added(prompt).number
        return created(VersionAnswer(self.versions(self.prompt(name)).get(number=number)), is_new=True)


class PromptVersionView(PromptsViewBase):
    """One version of a prompt."""

    @about_prompts(VersionAnswer, operation_id="promptversions_get")
    def get(self, name: str, version: int) -> Response:
        """A version with its text."""
        return Response(VersionAnswer(one_or_404(self.versions(self.prompt(name)), number=version)).data)


class ActivateView(PromptsViewBase):
    """Which version is in force."""

    @about_prompts(
        PromptDetail, operation_id="prompts_activate", body=ActivateInput, refuses=[NotApproved, PromptOfSite]
    )
    @transaction.atomic
    def post(self, name: str) -> Response:
        """Puts a version in force: it counts from the next job on. `previous_version` rolls back."""
        prompt = self.changeable(name)
        put_in_force(one_or_404(prompt.versions.all(), number=self.body["version"]), by=self.actor)
        return Response(PromptDetail(self.prompt(name)).data)
