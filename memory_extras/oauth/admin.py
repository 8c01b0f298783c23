"""Assistants in the admin, with their grants and revocation, and the consent page for operators."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.humanize.templatetags.humanize import naturaltime
from django.db.models import Count, F, IntegerField, Max, OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from oauth2_provider.models import get_id_token_model
from rest_framework.exceptions import ValidationError as RefusedByApi
from unfold.decorators import display

from memory_extras.oauth.conf import current
from memory_extras.oauth.consent_page import AccessRequest, ConsentPage, GrantForm
from memory_extras.oauth.models import AccessToken, Assistant, Code, Consent, RefreshToken
from sessions_app.admin.api_key import ApiKeyAdmin
from sessions_app.admin.applications import are_several
from sessions_app.admin.base import PageAdmin, time_cell
from sessions_app.admin.links import change_url, list_url
from sessions_app.admin.views import FormPage, OperatorPage, RowAction, confirm_first
from sessions_app.api.fields import PUBLIC_ID_MAX, PublicIdField
from sessions_app.models import ApiKey, Application, UserProfile
from sessions_app.models.application import DEFAULT

SHOWN = 50

# Remove the library's own pages. They would show all tokens to any operator with permission for one table.
for model in (Assistant, Code, AccessToken, RefreshToken, get_id_token_model()):
    admin.site.unregister(model)


class AssistantForm(FormPage[Assistant]):
    """The page of an assistant: its state, its grants, and the button that revokes it."""

    before = "oauth/assistant.html"

    def context(self) -> dict[str, Any]:
        keys = self.visible(ApiKey.objects.all())
        granted = Consent.objects.filter(assistant=self.row, key__in=keys).select_related("key__user")
        may_revoke = self.row.revoked_at is None and self.admin.has_change_permission(self.request)
        return {"client": self.row, "may_revoke": may_revoke, "grants": granted.order_by("-id")[:SHOWN], "most": SHOWN}


class RevokeAssistant(RowAction[Assistant]):
    """Revokes all grants of an assistant, and blocks new requests."""

    route, name = "<path:pk>/revoke/", "revoke"

    def change(self, assistant: Assistant) -> str:
        keys = assistant.revoke(by=self.actor)
        if keys is None:
            messages.error(self.request, f"{assistant} was already revoked.")
        else:
            self.log(assistant, "Revoked.", f"{assistant} is revoked, and so are its {keys} active grants.")
        return change_url(assistant)


def _of_consents(value: Any, **kwargs: Any) -> Subquery:
    rows = Consent.objects.filter(assistant=OuterRef("pk")).order_by().values("assistant").annotate(value=value)
    return Subquery(rows.values("value"), **kwargs)


@admin.register(Assistant)
class AssistantAdmin(PageAdmin):
    """Assistants. They register themselves, or are registered by `manage.py register_assistant`."""

    list_display = ("name", "state", "registered", "leads_to", "grants", "last_use", "made_at")
    shows_personal_data = False
    search_fields = search_prefixes = ("name", "client_id")
    search_help_text = "Start of a name or client id"
    ordering = ("-id",)
    actions = ("revoke",)
    form_page = AssistantForm
    views = (RevokeAssistant,)
    when_empty = "No assistants yet. An assistant appears here when it registers to request access."
    fields = readonly_fields = ("client_id", "registered", "redirects", "made_at", "revoked")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Assistant]:
        queryset: QuerySet[Assistant] = super().get_queryset(request)
        count = _of_consents(Count("pk"), output_field=IntegerField())
        last_use = _of_consents(Max("key__last_used_at"))
        annotated: QuerySet[Assistant] = queryset.annotate(grant_count=count, last_used_at=last_use)
        return annotated

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # the assistant's developer decides where codes are sent

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return obj is None and super().has_change_permission(request)  # to revoke, not to edit

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.action(description="Revoke selected assistants", permissions=["change"])
    @confirm_first(
        "All access of these assistants ends now, and they can't request access again. This can't be undone.",
        button="Revoke these assistants",
    )
    def revoke(self, request: HttpRequest, queryset: QuerySet[Assistant]) -> None:
        """Revoke all their grants."""
        RevokeAssistant.change_each(self, request, queryset)

    @display(description="State", label={"active": "success", "revoked": "danger"})  # type: ignore[untyped-decorator]
    def state(self, assistant: Assistant) -> str:
        return assistant.state

    @admin.display(description="Registered by")
    def registered(self, assistant: Assistant) -> str:
        return "itself" if assistant.registered_itself else "operator"

    @admin.display(description="Redirect URIs")
    def leads_to(self, assistant: Assistant) -> str:
        first, *others = assistant.redirect_uris.split()
        return f"{first} and {len(others)} more" if others else str(first)

    @admin.display(description="Redirect URIs")
    def redirects(self, assistant: Assistant) -> str:
        return "\n".join(assistant.redirect_uris.split())

    @admin.display(description="Grants")
    def grants(self, assistant: Any) -> int:
        return assistant.grant_count or 0

    @admin.display(description="Last used", ordering=F("last_used_at").desc(nulls_last=True))
    def last_use(self, assistant: Any) -> str:
        return str(naturaltime(assistant.last_used_at)) if assistant.last_used_at else "never"

    @admin.display(description="Registered", ordering="created")
    def made_at(self, assistant: Assistant) -> str:
        return time_cell(assistant.created)

    @admin.display(description="Revoked")
    def revoked(self, assistant: Assistant) -> str:
        return time_cell(assistant.revoked_at)


# --- the consent page: an operator can grant an assistant access to any person's memory ---


class PersonForm(GrantForm):
    user_id = forms.CharField(label="User", max_length=PUBLIC_ID_MAX)
    application = forms.ModelChoiceField(Application.objects.all(), required=False)
    begins = forms.BooleanField(required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["application"].required = are_several()  # with a single application, there is nothing to choose

    def clean_user_id(self) -> str:
        """Return the id, validated as in the API."""
        user_id: str = self.cleaned_data["user_id"]
        try:
            return str(PublicIdField().run_validation(user_id))
        except RefusedByApi:
            raise forms.ValidationError("An id can't contain a slash, and can't be '.' or '..'.") from None

    def clean(self) -> dict[str, Any]:
        """Find the person. Reject a missing one, unless the operator may create it."""
        given = super().clean() or {}
        if "user_id" in given:
            application = given.get("application")
            given["application_pk"] = application.pk if application else DEFAULT
            known = UserProfile.objects.filter(user_id=given["user_id"], application=given["application_pk"])
            if not (given["begins"] or known.exists()):
                self.add_error(
                    "user_id", "There is no user with this id. To create the user, select the checkbox below."
                )
        return given


class Authorize(OperatorPage, ConsentPage):
    """The page. Its URL contains the whole request, so the request survives a login."""

    route, name, permission = "authorize/", "authorize", "add"
    title = "Authorize an assistant"
    template_name = "oauth/authorize.html"
    form_class = PersonForm
    granter = "The operator"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        if not (current().is_on and request.GET):
            return HttpResponseRedirect(list_url(ApiKey))
        return self.respond(self.show)

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        if not current().is_on:
            return HttpResponseRedirect(list_url(ApiKey))
        return self.respond(self.decide)

    def context(self) -> dict[str, Any]:
        return {"applications": Application.objects.all() if are_several() else []}

    def grant(self, asked: AccessRequest, scopes: Sequence[str], form: GrantForm) -> Consent:
        chosen = form.cleaned_data
        user = UserProfile.objects.ensure(chosen["user_id"], chosen["application_pk"])
        consent = Consent.objects.allow(
            asked.assistant, user=user, scopes=scopes, ends_at=form.ends_at(), by=self.actor
        )
        self.admin.log_addition(self.request, consent.key, f"Granted to {asked.assistant} by OAuth.")
        return consent


ApiKeyAdmin.views = (Authorize, *ApiKeyAdmin.views)
