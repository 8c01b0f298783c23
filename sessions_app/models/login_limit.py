"""The applications that an operator's login is limited to."""

from django.conf import settings
from django.db import models

from sessions_app.models.application import Application


class LoginLimit(models.Model):
    """An application that a login may see. A login without limits sees all."""

    login = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="limits")
    # Protected, because a login whose last application was deleted would see all.
    application = models.ForeignKey(Application, on_delete=models.PROTECT, related_name="+")

    class Meta:
        verbose_name = "application limit"
        verbose_name_plural = "applications that the login may see (all if none is listed)"
        constraints = [models.UniqueConstraint(fields=["login", "application"], name="login_limit_once")]

    def __str__(self) -> str:
        return str(self.application)
