"""Applications: tenants of an installation, each with its own people, agents, keys and prompts.

Whatever belongs to a person belongs to that person's application. What belongs to nobody (an agent's shards, prompts,
events that name nobody) names its application itself. An installation begins with one, and sees nothing of it.
"""

from typing import Any

from django.core.cache import cache
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q

from sessions_app.refusals import Refusal

DEFAULT = 1  # the primary key of the application that every installation begins with
SEVERAL = "several-applications"  # in the cache: whether there is more than one
NAME = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"


class UnknownApplication(Refusal):
    """No application has this name."""


class ApplicationQuerySet(models.QuerySet["Application"]):
    def named(self, name: str) -> "Application":
        """Return the application with this name.

        Raises:
            UnknownApplication: there is none.
        """
        found = self.filter(name=name).first()
        if found is None:
            raise UnknownApplication(f"There is no application {name!r}. Create it with manage.py create_application.")
        return found

    def are_several(self) -> bool:
        """Return True if there is more than one; else nobody is shown or asked for any."""
        return self.count() > 1


class Application(models.Model):
    """A tenant."""

    name = models.CharField(
        max_length=64,
        unique=True,
        validators=[RegexValidator(NAME, "Use lower-case letters, digits and hyphens.")],
        help_text="The name can contain lower-case letters, digits and hyphens.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ApplicationQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [models.CheckConstraint(condition=Q(name__regex=NAME), name="application_name_is_slug")]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save it, and have pages ask anew whether there are several."""
        super().save(*args, **kwargs)
        cache.delete(SEVERAL)
