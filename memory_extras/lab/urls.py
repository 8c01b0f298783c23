"""URLs of the extra's API."""

from django.urls import include, path

from memory_extras.lab.api import probes, prompt_trials
from sessions_app.api.viewsets import api_router

router = api_router()
router.register("prompts", prompt_trials.PromptTrialViewSet, "prompttrials")
router.register("probes", probes.ProbeViewSet, "probes")
router.register("probes/<uuid:probe_id>/results", probes.ProbeResultViewSet, "results")
urlpatterns = [path("api/v1/", include(router.urls))]
