"""The page of a task, goal or problem."""

from typing import Any

from moments_app.models import Entity
from moments_app.operator.rights import may_retract_directly
from sessions_app.admin.views.base import FormPage

LINKS_SHOWN = 100


class EntityForm(FormPage[Entity]):
    """The page of an entity, with its author and the links that lead to it."""

    after = "operator/entities/links.html"

    def context(self) -> dict[str, Any]:
        links = self.row.links_in.select_related("from_entity").defer("from_entity__search_vector").order_by("-id")
        may_retract = may_retract_directly(self.request)
        return {"entity": self.row, "links_in": links[:LINKS_SHOWN], "may_retract": may_retract}
