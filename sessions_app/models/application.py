"""Applications: tenants of an installation, each with its own people, agents, keys and prompts.

A person's data belongs to the person's application. Rows without a person, such as an agent's shards, prompts and some
events, refer to their application directly. An installation starts with one application. As long as there is only one,
admin pages don't mention applications.
"""

from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q

from sessions_app.refusals import Refusal

DEFAULT = 1  # primary key of the first application of every installation
SEVERAL = "several-applications"  # key of the cached result of `are_several`
NAME = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"


class UnknownApplication(Refusal):
    """No application has this name."""


class ApplicationQuerySet(models.QuerySet["Application"]):
    def named(self, name: str) -> "Application":
        """Return the application with this name. Raise UnknownApplication if there is none."""
        found = self.filter(name=name).first()
        if found is None:
            raise UnknownApplication(f"There is no application {name!r}. Create it with manage.py create_application.")
        return found

    def are_several(self) -> bool:
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
        super().save(*args, **kwargs)
        cache.delete(SEVERAL)


class LoginLimit(models.Model):
    """An application that a login is limited to. A login without limits sees all applications."""

    login = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="limits")
    # Protected, because without its last limit, a login would see all applications.
    application = models.ForeignKey(Application, on_delete=models.PROTECT, related_name="+")

    class Meta:
        verbose_name = "application limit"
        verbose_name_plural = "applications that the login may see (all if none is listed)"
        constraints = [models.UniqueConstraint(fields=["login", "application"], name="login_limit_once")]

    def __str__(self) -> str:
        return str(self.application)
