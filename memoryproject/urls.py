"""Every address of the site."""

from typing import Any

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularSwaggerSplitView

from memoryproject import extras, health, metrics
from memoryproject.description import description
from memoryproject.settings import CONF
from sessions_app.api import oauth

# The description of the API holds nobody's data: it is open, so that clients can be made from it.
open_to_all: dict[str, Any] = {"authentication_classes": [], "permission_classes": []}

admin.autodiscover()
urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("api/v1/", include("sessions_app.api.urls")),
    path("api/v1/", include("moments_app.interfaces.api.urls")),
    path("api/v1/schema", description, name="schema"),
    path(
        "api/v1/docs",
        SpectacularSwaggerSplitView.as_view(url_name="schema", template_name="api_docs.html", **open_to_all),
        name="docs",
    ),
    path(".well-known/oauth-protected-resource", oauth.ResourceMetadata.as_view()),
    path(".well-known/oauth-protected-resource/mcp", oauth.ResourceMetadata.as_view()),
    path(".well-known/oauth-authorization-server", oauth.ServerMetadata.as_view()),
    # Where clients look that don't know the metadata, or have forgotten it.
    path("authorize", RedirectView.as_view(pattern_name="admin:sessions_app_apikey_authorize", query_string=True)),
    path("register", oauth.Register.as_view(), name="oauth_register"),
    path("token", oauth.Token.as_view(), name="oauth_token"),
    path("revoke", oauth.Revoke.as_view(), name="oauth_revoke"),
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    path("metrics", metrics.MetricsView.as_view()),
    *(path("", include(urls)) for urls in extras.modules(CONF.extras, "urls")),
]

handler400 = "sessions_app.api.errors.bad_request"
handler404 = "sessions_app.api.errors.not_found"
handler500 = "sessions_app.api.errors.server_error"
