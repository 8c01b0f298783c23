"""The transcript's tables, one module per concept."""

from sessions_app.models.api_key import ApiKey
from sessions_app.models.application import Application, LoginLimit
from sessions_app.models.daily_limit import DailyLimit, DailyUsage
from sessions_app.models.event import Event
from sessions_app.models.message import Archive, Message
from sessions_app.models.searched import Searched
from sessions_app.models.session import Session
from sessions_app.models.user_profile import UserProfile

__all__ = [
    "ApiKey",
    "Application",
    "Archive",
    "DailyLimit",
    "DailyUsage",
    "Event",
    "LoginLimit",
    "Message",
    "Searched",
    "Session",
    "UserProfile",
]
