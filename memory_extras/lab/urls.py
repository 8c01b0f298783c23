from django.urls import include, path

from memory_extras.lab import api
from sessions_app.api.viewsets import api_router

router = api_router()
router.register("prompts", api.PromptTrialViewSet, "prompttrials")
router.register("probes", api.ProbeViewSet, "probes")
router.register("probes/<uuid:probe_id>/results", api.ProbeResultViewSet, "results")
urlpatterns = [path("api/v1/", include(router.urls))]
