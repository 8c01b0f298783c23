"""Known people in users' memories: the list, and the page of one."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from moments_app.models import KnownPerson, MemoryAtom
from moments_app.operator.admin.filters import UserFilter
from moments_app.operator.pager import first_of
from sessions_app.admin.base import ReadOnlyAdmin, found_by
from sessions_app.admin.views.base import FormPage, may_see

FACTS_SHOWN = 50


class KnownPersonForm(FormPage[KnownPerson]):
    """The page of a known person, and the current facts about them."""

    after = "operator/known_people/facts.html"

    def context(self) -> dict[str, Any]:
        if not may_see(self.request, MemoryAtom):
            return {"known_person": self.row, "sees_facts": False}
        facts = MemoryAtom.objects.holding().filter(about=self.row).select_related("user")
        shown, more = first_of(facts.defer("search_vector").newest_first(), FACTS_SHOWN)
        return {"known_person": self.row, "sees_facts": True, "facts": shown, "more": more}


@admin.register(KnownPerson)
class KnownPersonAdmin(ReadOnlyAdmin):
    """People as the facts about them describe them. To change a person, correct the facts."""

    list_display = ("name", "relationship", "user_link", "key", "created_at")
    list_filter = (UserFilter,)
    list_select_related = ("user",)
    sortable_by = ()
    search_fields = ("name",)
    search_help_text = "A name, or the start of a user_id"
    when_empty = (
        "No people yet. A person is listed here when a fact names them with their relationship to the user, such as "
        "“sister”."
    )
    ordering = ("-id",)
    form_page = KnownPersonForm
    fields = (("name", "relationship"), "aliases", ("user_link", "key"), "created_at")
    readonly_fields = ("user_link",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[KnownPerson]:
        """Exclude people about whom every statement was withdrawn."""
        return super().get_queryset(request).with_statements()  # type: ignore[no-any-return]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[KnownPerson], search_term: str
    ) -> tuple[QuerySet[KnownPerson], bool]:
        term = search_term.strip().replace("\0", "")
        if not term:
            return queryset, False
        named = queryset.filter(pk__in=KnownPerson.objects.named(term).values("pk"))
        return found_by(queryset, named, queryset.filter(user__user_id__startswith=term)), False
