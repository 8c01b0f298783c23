"""Applications and API keys in the admin. A key is created here, shown once, and revoked, but never edited."""

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.humanize.templatetags.humanize import naturaltime
from django.db.models import Count, IntegerField, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from unfold.decorators import display

from sessions_app.admin.applications import are_several
from sessions_app.admin.base import PageAdmin, one_line
from sessions_app.admin.daily_limit import UsageForm, usage_context
from sessions_app.admin.links import change_url, link_to
from sessions_app.admin.views.base import FormPage, OperatorView, RowAction, RowPage, asks_first
from sessions_app.models import ApiKey, Application, UserProfile
from sessions_app.models.application import DEFAULT

SCOPES = {
    ApiKey.Scope.READ: "read: load sessions, search, get contexts",
    ApiKey.Scope.WRITE: "write: also append messages and edit memory",
    ApiKey.Scope.ADMIN: "admin: also delete, hold and erase",
}


def _number_of(rows: QuerySet[Any]) -> Subquery:
    numbers = rows.filter(application=OuterRef("pk")).order_by().values("application").annotate(number=Count("pk"))
    return Subquery(numbers.values("number"), output_field=IntegerField())


@admin.register(Application)
class ApplicationAdmin(PageAdmin):
    """Tenants. They are created here or by `manage.py create_application`, and never deleted."""

    list_display = ("name", "people", "keys", "made_at")
    search_fields = search_prefixes = ("name",)
    ordering = ("name",)
    fields = ("name",)
    form_page = UsageForm

    def get_queryset(self, request: HttpRequest) -> QuerySet[Application]:
        queryset: QuerySet[Application] = super().get_queryset(request)
        keys = ApiKey.objects.filter(revoked_at=None)
        return queryset.annotate(people=_number_of(UserProfile.objects.all()), keys=_number_of(keys))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # deleting it would delete its people, who must be erased one by one

    @admin.display(description="People", empty_value="0")
    def people(self, application: Any) -> Any:
        return application.people

    @admin.display(description="Keys", empty_value="0")
    def keys(self, application: Any) -> Any:
        return application.keys

    @admin.display(description="Created", ordering="created_at")
    def made_at(self, application: Application) -> str:
        return one_line(application.created_at)


class ApiKeyForm(FormPage[ApiKey]):
    """The page of a key: its state, the button that revokes it, and its usage."""

    before = "operator/keys/key.html"
    after = "operator/limits/usage.html"

    def context(self) -> dict[str, Any]:
        key = self.row
        may_revoke = key.revoked_at is None and self.admin.has_change_permission(self.request)
        return usage_context(self.request, key) | {"key": key, "may_revoke": may_revoke}


class MadeApiKey(RowPage[ApiKey]):
    """The page that shows the text of a new key once."""

    template_name = "operator/keys/made.html"

    def get_title(self) -> str:
        return f"Key {self.row.name}"

    def context(self) -> dict[str, Any]:
        return {"key": self.row, "text": self.request.issued_text}  # type: ignore[attr-defined]


class RevokeApiKey(RowAction[ApiKey]):
    """Revokes a key."""

    route, name = "<path:pk>/revoke/", "revoke"

    def change(self, key: ApiKey) -> str:
        if key.revoke():
            self.log(key, "Revoked.", f"{key} is revoked.")
        else:
            messages.error(self.request, f"{key} was already revoked.")
        return change_url(key)


class StateFilter(admin.SimpleListFilter):
    """Filters keys by whether they are still valid."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("active", "Active"), ("expired", "Expired"), ("revoked", "Revoked")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
        expired = Q(expires_at__lte=timezone.now())
        narrowed = {
            "active": queryset.filter(~expired | Q(expires_at=None), revoked_at=None),
            "expired": queryset.filter(expired, revoked_at=None),
            "revoked": queryset.filter(revoked_at__isnull=False),
        }
        return narrowed.get(self.value() or "", queryset)


@admin.register(ApiKey)
class ApiKeyAdmin(PageAdmin):
    """API keys."""

    list_display = ("name", "state", "shown_prefix", "acts_for", "scope", "made_at", "expiry", "last_use")
    list_filter = (StateFilter, "scope")
    list_select_related = ("user",)
    tells_of_people = False
    search_fields = ("name", "prefix")
    ordering = ("-id",)
    raw_id_fields = ("user",)
    radio_fields = {"scope": admin.VERTICAL}
    actions = ("revoke",)
    form_page = ApiKeyForm
    views: ClassVar[Sequence[type[OperatorView]]] = (RevokeApiKey,)
    when_empty = "No API keys yet. Applications need one to call the API."

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        if obj is None:
            whose = ("application", "user") if are_several() else ("user",)
            return ("name", "scope", *whose, "expires_at")
        return (
            ("shown_prefix", "acts_for"),
            ("shown_scope", "last_use"),
            ("created_at", "expires_at", "revoked_at"),
        )

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        return ("shown_prefix", "acts_for", "shown_scope", "last_use") if obj else ()

    def formfield_for_choice_field(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "scope":
            kwargs["choices"] = list(SCOPES.items())
        return super().formfield_for_choice_field(db_field, request, **kwargs)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        # Each of Django's save buttons leads to the page with the key, so the form has only one.
        alone = {"show_save_and_continue": False, "show_save_and_add_another": False}
        answer: HttpResponse = super().add_view(request, form_url, (extra_context or {}) | alone)
        return answer

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # A key's permissions are fixed when it is created. Revoking it still needs the permission to change it.
        return obj is None and super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        """Issue the key. `response_add` shows its text once."""
        chosen = form.cleaned_data.get("application")
        key, text = ApiKey.objects.issue(
            obj.name,
            user=obj.user,
            application=chosen.pk if chosen else DEFAULT,
            scope=obj.scope,
            expires_at=obj.expires_at,
        )
        obj.pk, obj.prefix, obj.created_at = key.pk, key.prefix, key.created_at
        request.issued_text = text  # type: ignore[attr-defined]

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        """Show the page with the key. A redirect would need a message, which would store the text in a cookie."""
        page = MadeApiKey(admin=self, row=obj)
        page.setup(request)
        return page.page()

    @admin.action(description="Revoke selected keys", permissions=["change"])
    @asks_first(
        "Requests with these keys are rejected from now on. This can't be undone; clients need new keys.",
        button="Revoke these keys",
    )
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        """Revoke the keys."""
        RevokeApiKey.change_each(self, request, queryset)

    @display(description="State", label={"active": "success", "expired": "warning", "revoked": "danger"})  # type: ignore[untyped-decorator]
    def state(self, key: ApiKey) -> str:
        return key.state

    @admin.display(description="Prefix")
    def shown_prefix(self, key: ApiKey) -> str:
        return f"mem_{key.prefix}_…"

    @admin.display(description="User")
    def acts_for(self, key: ApiKey) -> str:
        return link_to(key.user) if key.user else "any user"

    @admin.display(description="Scope")
    def shown_scope(self, key: ApiKey) -> str:
        return SCOPES[ApiKey.Scope(key.scope)]

    @admin.display(description="Created", ordering="created_at")
    def made_at(self, key: ApiKey) -> str:
        return f"{key.created_at:%Y-%m-%d}"

    @admin.display(description="Expires", ordering="expires_at")
    def expiry(self, key: ApiKey) -> str:
        return f"{key.expires_at:%Y-%m-%d}" if key.expires_at else "never"

    @admin.display(description="Last used", ordering="last_used_at")
    def last_use(self, key: ApiKey) -> str:
        return str(naturaltime(key.last_used_at)) if key.last_used_at else "never"
