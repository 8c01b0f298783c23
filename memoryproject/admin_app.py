"""Django's admin, as an app that imports its pages together with the URLs (`urls.py`) and for its checks.

The pages are half of the code. Commands and workers start without them.
"""

from typing import Any

from django.contrib.admin import autodiscover
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core.checks import CheckMessage, Tags, register


class AdminConfig(SimpleAdminConfig):
    """See the module's text."""

    def ready(self) -> None:
        register(check_dependencies, Tags.admin)
        register(check_pages, Tags.admin)


def check_pages(**named: Any) -> list[CheckMessage]:
    """Check every page of the admin."""
    autodiscover()
    return check_admin_app(**named)
