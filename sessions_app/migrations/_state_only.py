"""Operations that change what Django knows of models, and nothing in the database, such as help texts."""

from django.db import migrations
from django.db.migrations.state import ProjectState


class StateOnly(migrations.SeparateDatabaseAndState):
    """Change the state of models without SQL.

    Django renders a model again after each operation on it. This renders all models once, when they are needed next.
    """

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        state.__dict__.pop("apps", None)
        super().state_forwards(app_label, state)
