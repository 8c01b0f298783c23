"""The transcript's pages that need nothing of memory; `moments_app.operator.admin` shows sessions and turns."""

from sessions_app.admin.api_key import ApiKeyAdmin
from sessions_app.admin.application import ApplicationAdmin
from sessions_app.admin.archive import ArchiveAdmin
from sessions_app.admin.event import EventAdmin
from sessions_app.admin.logins import GroupAdmin, LoginAdmin

__all__ = ["ApiKeyAdmin", "ApplicationAdmin", "ArchiveAdmin", "EventAdmin", "GroupAdmin", "LoginAdmin"]
