"""The page of a known person in a user's memory."""

from typing import Any

from moments_app.models import KnownPerson, MemoryAtom
from moments_app.operator.pager import first_of
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
