"""URLs of the transcript's API, under `/api/v1/`."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from sessions_app.api import messages, sessions, usage, users
from sessions_app.api.viewsets import api_router


class PublicIdConverter(StringConverter):
    """Matches ids that `PublicIdField` accepts, but of any length. The view rejects ids that are too long."""

    regex = r"(?!\.{1,2}(?:/|\Z))[^/\x00]+"


register_converter(PublicIdConverter, "public_id")

router = api_router()
router.register("sessions", sessions.SessionViewSet, "sessions")
router.register("sessions/<public_id:session_id>/messages", messages.MessageViewSet, "messages")
router.register("users", users.UserViewSet, "users")

urlpatterns = [
    *router.urls,
    path("usage", usage.UsageViewSet.as_view({"get": "retrieve"}, basename="usage"), name="usage"),
]
