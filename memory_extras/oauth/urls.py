"""URLs for assistants. The library finds its own URLs by name in the namespace `oauth2_provider`."""

from django.urls import include, path
from django.views.generic import RedirectView

from memory_extras.oauth import views
from memory_extras.oauth.audiences import NAMES

_consent = RedirectView.as_view(pattern_name="admin:sessions_app_apikey_authorize", query_string=True)
_named = [
    path("authorize", _consent, name="authorize"),
    path("token", views.Token.as_view(), name="token"),
    path("revoke", views.Revoke.as_view(), name="revoke-token"),
    path("register", views.Register.as_view(), name="dcr-register"),
    path(".well-known/oauth-authorization-server", views.ServerMetadata.as_view(), name="oauth-server-metadata"),
]
urlpatterns = [
    path("", include((_named, "oauth2_provider"))),
    path(views.METADATA.removeprefix("/"), views.ResourceMetadata.as_view()),
    *(
        path(f"{views.METADATA}{audience}".removeprefix("/"), views.ResourceMetadata.as_view(audience=audience))
        for audience in NAMES
    ),
]
