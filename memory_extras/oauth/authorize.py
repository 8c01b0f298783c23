"""The consent page for operators, who can grant an assistant access to any person's memory."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from rest_framework.exceptions import ValidationError as RefusedByApi

from memory_extras.oauth.consent_page import Asked, ConsentPage, GrantForm
from memory_extras.oauth.models import Consent
from memory_extras.oauth.views import is_on
from sessions_app.admin.applications import are_several
from sessions_app.admin.links import list_url
from sessions_app.admin.views import OperatorPage
from sessions_app.api.fields import PUBLIC_ID_MAX, PublicIdField
from sessions_app.models import ApiKey, Application, UserProfile
from sessions_app.models.application import DEFAULT


class PersonForm(GrantForm):
    """The person whose memory the assistant may use, and the granted scopes and duration."""

    user_id = forms.CharField(label="User", max_length=PUBLIC_ID_MAX)
    application = forms.ModelChoiceField(Application.objects.all(), required=False)
    begins = forms.BooleanField(required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["application"].required = are_several()  # otherwise there is only one

    def clean_user_id(self) -> str:
        """Return the id, validated as in the API."""
        user_id: str = self.cleaned_data["user_id"]
        try:
            return str(PublicIdField().run_validation(user_id))
        except RefusedByApi:
            raise forms.ValidationError("An id can't contain a slash, and can't be '.' or '..'.") from None

    def clean(self) -> dict[str, Any]:
        """Find the person.

        Raises:
            ValidationError: The person doesn't exist, and may not be created.
        """
        given = super().clean() or {}
        if "user_id" in given:
            application = given.get("application")
            given["application_pk"] = application.pk if application else DEFAULT
            known = UserProfile.objects.filter(user_id=given["user_id"], application=given["application_pk"])
            if not (given["begins"] or known.exists()):
                self.add_error(
                    "user_id", "user_id: there is no user with this id. To create the user, select the checkbox below."
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
        if not (is_on() and request.GET):
            return HttpResponseRedirect(list_url(ApiKey))
        return self.answered(self.shown)

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        if not is_on():
            return HttpResponseRedirect(list_url(ApiKey))
        return self.answered(self.decided)

    def context(self) -> dict[str, Any]:
        return {"applications": Application.objects.all() if are_several() else []}

    def grant(self, asked: Asked, scopes: Sequence[str], form: GrantForm) -> Consent:
        chosen = form.cleaned_data
        user = UserProfile.objects.ensure(chosen["user_id"], chosen["application_pk"])
        consent = Consent.objects.allow(
            asked.assistant, user=user, scopes=scopes, ends_at=form.ends_at(), by=self.actor
        )
        self.admin.log_addition(self.request, consent.key, f"Granted to {asked.assistant} by OAuth.")
        return consent
