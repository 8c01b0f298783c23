"""Addresses of the transcript's API, under `/api/v1/`."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from sessions_app.api import views


class PublicIdConverter(StringConverter):
    """An id that the application chose: anything PostgreSQL can hold, 1 to 255 characters without a slash."""

    regex = r"[^/\x00]{1,255}"


register_converter(PublicIdConverter, "public_id")

urlpatterns = [
    path("sessions", views.SessionsView.as_view(), name="sessions"),
    path("sessions/<public_id:session_id>", views.SessionView.as_view(), name="session"),
    path("sessions/<public_id:session_id>/messages", views.MessagesView.as_view(), name="messages"),
    path("users/<public_id:user_id>", views.UserView.as_view(), name="user"),
    path("users/<public_id:user_id>/export", views.ExportView.as_view(), name="user_export"),
]
