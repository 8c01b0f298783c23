"""The transcript's pages that need nothing of memory; sessions and their turns are shown by `moments_app.admin`."""

from sessions_app.admin.api_key import ApiKeyAdmin
from sessions_app.admin.archive import ArchiveAdmin
from sessions_app.admin.event import EventAdmin
from sessions_app.admin.logins import GroupAdmin, LoginAdmin

__all__ = ["ApiKeyAdmin", "ArchiveAdmin", "EventAdmin", "GroupAdmin", "LoginAdmin"]
