"""Applications, API keys and daily limits in the admin, with their recent usage.

Operators create and revoke keys here, but can't edit them. The text of a key is shown once.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.humanize.templatetags.humanize import intcomma, naturaltime
from django.db.models import Count, IntegerField, Model, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from sessions_app.admin.applications import are_several
from sessions_app.admin.base import PageAdmin, time_cell
from sessions_app.admin.links import change_url, column, link_to, page_url
from sessions_app.admin.views import FormPage, OperatorView, RowAction, RowPage, may_see
from sessions_app.models import ApiKey, Application, DailyLimit, DailyUsage, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.models.daily_limit import UNITS, Amounts, Subject, SubjectKind, UsageStatus, today

HELP = {
    "requests": "After the limit is reached, requests get status 429.",
    "model_calls": "After the limit is reached, jobs wait until the next day.",
    "usd": "Only models with a known price count. After the limit is reached, jobs wait until the next day.",
}
DAYS = 7  # days of usage to show
KINDS: dict[type[Model], SubjectKind] = {ApiKey: SubjectKind.KEY, Application: SubjectKind.APPLICATION}
SCOPES = {
    ApiKey.Scope.READ: "read: load sessions, search, get contexts",
    ApiKey.Scope.WRITE: "write: also append messages and edit memory",
    ApiKey.Scope.ADMIN: "admin: also delete, hold and erase",
}


class UsageForm(FormPage[Any]):
    """The form of a key, an application or a limit, shown below the usage."""

    before = "operator/limits/usage.html"

    def context(self) -> dict[str, Any]:
        return usage_context(self.request, self.row)


def usage_context(request: HttpRequest, row: Model) -> dict[str, Any]:
    """Return the template context of `limits/usage.html` for the key or application of a row.

    Empty if the operator may not see usage.
    """
    if not request.user.has_perm("sessions_app.view_dailyusage"):
        return {}
    subject = row.subject if isinstance(row, DailyLimit) else Subject(KINDS[type(row)], row.pk)
    [status] = DailyUsage.objects.usage_statuses([subject])
    days = {today(): status.used} | DailyUsage.objects.by_day(subject, DAYS)
    own = DailyLimit.objects.filter(**{subject.kind: subject.pk}).first()
    usage = {
        "names": [unit.capitalize() if unit.islower() else unit for unit in UNITS.values()],
        "limits": [status.limits.get(name) for name in UNITS],
        "days": [(day, _amounts(used, status if day == status.day else None)) for day, used in days.items()],
        "has_own": own is not None,
        "limits_url": "" if isinstance(row, DailyLimit) else _limits_url(request, subject, own),
    }
    return {"usage": usage}


def _amounts(used: Amounts, usage_status: UsageStatus | None) -> list[tuple[Any, bool]]:
    return [(used.of(name), usage_status is not None and usage_status.is_used_up(name)) for name in UNITS]


def _limits_url(request: HttpRequest, subject: Subject, own: DailyLimit | None) -> str:
    if not request.user.has_perm(f"sessions_app.{'change' if own else 'add'}_dailylimit"):
        return ""
    return change_url(own) if own else page_url(DailyLimit, "add", **{subject.kind: subject.pk})


def _shown(limit: Any) -> str:
    """Format an amount for a column. A dash means the default in the settings."""
    return "–" if limit is None else intcomma(limit) if limit else "no limit"


@admin.register(DailyLimit)
class DailyLimitAdmin(PageAdmin):
    """Limits that replace the default limits in the settings for one key or application."""

    list_display = ("name", "of", *(f"most_{name}" for name in UNITS))
    applications = ("application", "key__application")
    list_select_related = ("key", "application")
    search_fields = search_prefixes = ("key__name",)
    search_help_text = "Start of a key's name"
    ordering = ("-id",)
    raw_id_fields = ("key",)
    form_page = UsageForm
    when_empty = (
        "No key or application has its own limits. The settings DAILY_LIMITS__… apply to all keys and applications."
    )
    of = column("subject.kind.value", "Type")
    most_requests = column("requests", "Requests", _shown)
    most_model_calls = column("model_calls", "Model calls", _shown)
    most_usd = column("usd", "USD", _shown)

    def get_queryset(self, request: HttpRequest) -> QuerySet[DailyLimit]:
        """Exclude the limits of keys if the operator may not see keys."""
        limits: QuerySet[DailyLimit] = super().get_queryset(request)
        return limits if may_see(request, ApiKey) else limits.filter(key=None)

    def get_fields(self, request: HttpRequest, obj: DailyLimit | None = None) -> Any:
        whose = ("whose",) if obj else ("key", "application") if are_several() else ("key",)
        return (*whose, *UNITS)

    def get_readonly_fields(self, request: HttpRequest, obj: DailyLimit | None = None) -> Any:
        return ("whose",) if obj else ()

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name in HELP:
            kwargs["help_text"] = f"{HELP[db_field.name]} Leave blank to use the setting. 0 means no limit."
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    @admin.display(description="Owner")
    def name(self, limit: DailyLimit) -> str:
        return str(limit)

    @admin.display(description="Owner")
    def whose(self, limit: DailyLimit) -> str:
        return link_to(limit.key or limit.application)


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
    may_delete = False  # this would delete the application's people, who must be erased one by one
    people = column("people", "People", empty_value="0")
    keys = column("keys", "Keys", empty_value="0")
    made_at = column("created_at", "Created", time_cell, ordering="created_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Application]:
        queryset: QuerySet[Application] = super().get_queryset(request)
        keys = ApiKey.objects.filter(revoked_at=None)
        return queryset.annotate(people=_number_of(UserProfile.objects.all()), keys=_number_of(keys))


class ApiKeyForm(FormPage[ApiKey]):
    """The page of a key: its state, the button that revokes it, and its usage."""

    before = "operator/keys/key.html"
    after = "operator/limits/usage.html"

    def context(self) -> dict[str, Any]:
        key = self.row
        may_revoke = key.revoked_at is None and self.admin.has_change_permission(self.request)
        return usage_context(self.request, key) | {"key": key, "may_revoke": may_revoke}


class NewApiKeyPage(RowPage[ApiKey]):
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
    shows_personal_data = False
    search_fields = ("name", "prefix")
    ordering = ("-id",)
    raw_id_fields = ("user",)
    radio_fields = {"scope": admin.VERTICAL}
    actions = ("revoke",)
    form_page = ApiKeyForm
    views: ClassVar[Sequence[type[OperatorView]]] = (RevokeApiKey,)
    when_empty = "No API keys yet. Applications need one to call the API."
    may_delete = False
    revoke = RevokeApiKey.for_selected(
        "Revoke selected keys",
        button="Revoke these keys",
        warning="Requests with these keys are rejected from now on. This can't be undone; clients need new keys.",
    )
    state = column("state", "State", label={"active": "success", "expired": "warning", "revoked": "danger"})
    shown_prefix = column("prefix", "Prefix", "mem_{}_…".format)
    made_at = column("created_at", "Created", "{:%Y-%m-%d}".format, ordering="created_at")

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
        # Show only one of Django's save buttons, because each of them would lead to the page with the key.
        alone = {"show_save_and_continue": False, "show_save_and_add_another": False}
        answer: HttpResponse = super().add_view(request, form_url, (extra_context or {}) | alone)
        return answer

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # A key's permissions can't be changed later. Revoking the key still requires the permission to change it.
        return obj is None and super().has_change_permission(request)

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
        page = NewApiKeyPage(admin=self, row=obj)
        page.setup(request)
        return page.page()

    @admin.display(description="User")
    def acts_for(self, key: ApiKey) -> str:
        return link_to(key.user) if key.user else "any user"

    @admin.display(description="Scope")
    def shown_scope(self, key: ApiKey) -> str:
        return SCOPES[ApiKey.Scope(key.scope)]

    @admin.display(description="Expires", ordering="expires_at")
    def expiry(self, key: ApiKey) -> str:
        return f"{key.expires_at:%Y-%m-%d}" if key.expires_at else "never"

    @admin.display(description="Last used", ordering="last_used_at")
    def last_use(self, key: ApiKey) -> str:
        return str(naturaltime(key.last_used_at)) if key.last_used_at else "never"
