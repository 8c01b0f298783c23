"""Addresses of the transcript's API, under `/api/v1/`."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from sessions_app.api import messages, sessions, usage, users


class PublicIdConverter(StringConverter):
    """An id that the application chose, as `PublicIdField` takes it; of one that is too long, the view says so."""

    regex = r"(?!\.{1,2}(?:/|\Z))[^/\x00]+"


register_converter(PublicIdConverter, "public_id")

urlpatterns = [
    path("sessions", sessions.SessionsView.as_view(), name="sessions"),
    path("sessions/<public_id:session_id>", sessions.SessionView.as_view(), name="session"),
    path("sessions/<public_id:session_id>/messages", messages.MessagesView.as_view(), name="messages"),
    path("usage", usage.UsageView.as_view(), name="usage"),
    path("users/<public_id:user_id>", users.UserView.as_view(), name="user"),
    path("users/<public_id:user_id>/export", users.ExportView.as_view(), name="user_export"),
]
