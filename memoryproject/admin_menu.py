"""The sidebar of the admin and the tabs of related lists. Headings use the same names."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from django.apps import apps
from django.http import HttpRequest
from django.urls import reverse, reverse_lazy
from django.utils.functional import lazy
from django.utils.module_loading import import_string
from django.utils.text import capfirst
from unfold.dataclasses import SearchResult


class Entry(NamedTuple):
    one: str
    many: str
    icon: str


ENTRIES = {
    "sessions_app.userprofile": Entry("person", "people", "person"),
    "sessions_app.session": Entry("session", "sessions", "forum"),
    "moments_app.moment": Entry("moment", "moments", "bookmark"),
    "moments_app.summary": Entry("summary", "summaries", "summarize"),
    "moments_app.memorystream": Entry("memory text", "memory texts", "article"),
    "moments_app.release": Entry("release", "releases", "campaign"),
    "moments_app.memoryatom": Entry("fact or observation", "facts and observations", "grain"),
    "moments_app.retraction": Entry("retraction", "retractions", "undo"),
    "moments_app.correction": Entry("correction", "corrections", "spellcheck"),
    "moments_app.contradiction": Entry("contradiction", "contradictions", "rule"),
    "moments_app.entity": Entry("task or goal", "tasks and goals", "task_alt"),
    "moments_app.knownperson": Entry("known person", "known persons", "group"),
    "moments_app.storeditem": Entry("stored item", "stored items", "inventory"),
    "moments_app.contextreceipt": Entry("served context", "served contexts", "receipt_long"),
    "moments_app.promptresource": Entry("prompt", "prompts", "edit_note"),
    "moments_app.failuregroup": Entry("failure", "failures", "report"),
    "moments_app.job": Entry("job", "jobs", "manufacturing"),
    "moments_app.enginecall": Entry("model call", "model calls", "bolt"),
    "moments_app.circuit": Entry("circuit", "circuits", "power"),
    "moments_app.embeddingmodel": Entry("embedding model", "embedding models", "data_array"),
    "sessions_app.archive": Entry("archive", "archives", "inventory_2"),
    "sessions_app.event": Entry("event", "events", "history"),
    "django_q.schedule": Entry("schedule", "schedules", "schedule"),
    "sessions_app.application": Entry("application", "applications", "apartment"),
    "sessions_app.apikey": Entry("API key", "API keys", "key"),
    "sessions_app.dailylimit": Entry("daily limit", "daily limits", "speed"),
    "moments_app.webhookendpoint": Entry("webhook", "webhooks", "webhook"),
    "moments_app.webhookdelivery": Entry("webhook delivery", "webhook deliveries", "outbox"),
    "auth.user": Entry("staff member", "staff", "badge"),
    "auth.group": Entry("group", "groups", "group"),
}
# Lists that share one sidebar entry and appear as tabs of each other. The entry has the name of the first one.
SHARED = [
    ["sessions_app.session", "moments_app.summary", "moments_app.contextreceipt", "sessions_app.archive"],
    ["moments_app.memoryatom", "moments_app.entity", "moments_app.knownperson", "moments_app.storeditem"],
    ["moments_app.correction", "moments_app.contradiction", "moments_app.retraction"],
    ["moments_app.failuregroup", "moments_app.circuit"],
    ["moments_app.job", "django_q.schedule"],
    ["moments_app.enginecall", "moments_app.embeddingmodel"],
    [
        "sessions_app.apikey",
        "sessions_app.dailylimit",
        "moments_app.webhookendpoint",
        "moments_app.webhookdelivery",
        "sessions_app.application",
    ],
]
# For each model, the function that returns how many of its rows are waiting for an operator.
_BADGES = {
    "moments_app.job": "moments_app.operator.admin.job.failed_count",
    "moments_app.release": "moments_app.operator.admin.release.pending_count",
    "moments_app.correction": "moments_app.operator.admin.correction.pending_count",
}
# For each model, the function that returns the page to open instead of the list. A blank string opens the list.
_OPENS = {"moments_app.release": "moments_app.operator.admin.release.pending_page"}
# For each model whose list needs more than the view permission, the function that returns whether to show the list.
_PERMISSIONS = {"sessions_app.application": "sessions_app.admin.applications.are_shown"}


@cache  # because Unfold needs the URLs hundreds of times for each page
def _url(view: str) -> str:
    return reverse(view)


_lazy_url = lazy(_url, str)

_FIND: dict[str, object] = {
    "title": "Find",
    "icon": "search",
    "link": _lazy_url("admin:sessions_app_userprofile_find"),
    "permission": lambda request: request.user.has_perm("sessions_app.view_userprofile"),
    "active": lambda request: request.path == str(_FIND["link"]),
}
_DASHBOARD: dict[str, object] = {
    "title": "Dashboard",
    "icon": "home",
    "link": _lazy_url("admin:index"),
    "permission": lambda request: True,
}
_COST: dict[str, object] = {
    "title": "Cost",
    "icon": "payments",
    "link": _lazy_url("admin:moments_app_enginecall_cost"),
    "permission": lambda request: request.user.has_perms(["moments_app.view_enginecall", "moments_app.view_job"]),
}
SEPARATE_PAGES = [_FIND]  # pages with their own entry, although their URL starts with that of a list


def add_page(section: str, title: str, icon: str, view: str, permission: Callable[[HttpRequest], bool]) -> None:
    """Append an extra's page to a section of the sidebar."""
    link = _lazy_url(view)
    page: dict[str, object] = {
        "title": title,
        "icon": icon,
        "link": link,
        "permission": permission,
        "active": lambda request: request.path.startswith(str(link)),
    }
    SEPARATE_PAGES.append(page)
    items: Any = next(each["items"] for each in NAVIGATION if each["title"] == section)
    items.append(page)


def pages_named(request: HttpRequest, words: str) -> list[SearchResult]:
    """Return the pages whose names contain the words. Lists are not included, because Unfold finds them itself."""
    pages = (_DASHBOARD, *SEPARATE_PAGES, _COST)
    named = [page for page in pages if words in str(page["title"]).lower() and _is_shown(page, request)]
    return [SearchResult(str(page["title"]), "page", str(page["link"]), str(page["icon"])) for page in named]


def _is_shown(page: dict[str, object], request: HttpRequest) -> bool:
    permission: Any = page["permission"]
    return bool((import_string(permission) if isinstance(permission, str) else permission)(request))


def name_models() -> None:
    """Set the models' names here, because a name in a model's own `Meta` would need a migration to change."""
    for label, entry in ENTRIES.items():
        options = apps.get_model(label)._meta
        options.verbose_name, options.verbose_name_plural = entry.one, entry.many


def _is_page(request: HttpRequest) -> bool:
    return any(request.path.startswith(str(page["link"])) for page in SEPARATE_PAGES)


def _section(title: str, *models: str, first: Sequence[dict[str, object]] = ()) -> dict[str, object]:
    return {"title": title, "separator": True, "items": [*first, *map(_entry, models)]}


def _entry(model: str) -> dict[str, object]:
    """Return the sidebar entry of a list. Several lists may share it."""

    def shown(request: HttpRequest) -> list[str]:
        lists = map(_list, shared_with(model))
        return [str(each["link"]) for each in lists if _is_shown(each, request)]

    def opened(request: HttpRequest) -> str:
        page = import_string(_OPENS[model])(request) if model in _OPENS else ""
        return page or next(iter(shown(request)), "")

    entry = {
        "title": capfirst(ENTRIES[model].many),
        "icon": ENTRIES[model].icon,
        "link": opened,
        "permission": lambda request: bool(shown(request)),
        "active": lambda request: request.path.startswith(tuple(shown(request))) and not _is_page(request),
    }
    return entry | ({"badge": _BADGES[model]} if model in _BADGES else {})


def _list(model: str) -> dict[str, object]:
    app, name = model.split(".")
    return {
        "title": capfirst(ENTRIES[model].many),
        "link": _url(f"admin:{app}_{name}_changelist"),
        "permission": _PERMISSIONS.get(model, lambda request: request.user.has_perm(f"{app}.view_{name}")),
    }


def shared_with(model: str) -> list[str]:
    """Return the models whose lists share the entry of a model, including the model itself."""
    return next((models for models in SHARED if models[0] == model), [model])


def tabs(request: HttpRequest) -> list[dict[str, object]]:
    """Return only the tabs of this page, because Unfold compares each tab with each entry of the sidebar."""

    def has(models: list[str]) -> bool:
        return request.path.startswith(tuple(str(_list(model)["link"]) for model in models))

    return [{"models": models, "items": [*map(_list, models)]} for models in SHARED if has(models)]


# Pages on which operators manage their own login.
ACCOUNT = [
    {"title": "Change password", "link": reverse_lazy("admin:password_change")},
    {"title": "Second factor", "link": reverse_lazy("admin:auth_user_second_factor")},
]

NAVIGATION = [
    _section(
        "Memory",
        "sessions_app.userprofile",
        "sessions_app.session",
        "moments_app.moment",
        "moments_app.memoryatom",
        "moments_app.memorystream",
        "moments_app.release",
        "moments_app.correction",
        first=[_FIND],
    )
    | {"separator": False},
    _section("Tuning", "moments_app.promptresource"),
    _section(
        "Operations", "moments_app.failuregroup", "moments_app.job", "moments_app.enginecall", "sessions_app.event"
    ),
    _section("Access", "sessions_app.apikey", "auth.user"),
]


def add_entry(model: str, entry: Entry, *, after: str) -> None:
    neighbor = capfirst(ENTRIES[after].many)
    ENTRIES[model] = entry
    for section in NAVIGATION:
        items: Any = section["items"]
        titles = [item["title"] for item in items]
        if neighbor in titles:
            items.insert(titles.index(neighbor) + 1, _entry(model))


def add_tab(model: str, entry: Entry, *, beside: str) -> None:
    ENTRIES[model] = entry
    shared_with(beside).append(model)
