"""The addresses of memory's API, under `/api/v1/`."""

from django.urls import path

from moments_app.interfaces.api import (
    atoms,
    context,
    coverage,
    entities,
    facts,
    jobs,
    moments,
    probes,
    profile_lines,
    prompt_trials,
    prompts,
    retractions,
    search,
    shard_retractions,
    streams,
    summaries,
)
from sessions_app.api.viewsets import api_router

router = api_router()
router.register("moments", moments.MomentViewSet, "moments")

urlpatterns = [
    # First, as they are asked for most: an address is compared with one after the other.
    path("memory/context", context.ContextView.as_view(), name="memory_context"),
    path("memory/search", search.SearchView.as_view(), name="memory_search"),
    path("users/<public_id:user_id>/lines", profile_lines.ProfileLinesView.as_view(), name="profile_lines"),
    *router.urls,
    path("sessions/<public_id:session_id>/summaries", summaries.SummariesView.as_view(), name="summaries"),
    path("sessions/<public_id:session_id>/compact", summaries.CompactView.as_view(), name="compact"),
    path("entities", entities.EntitiesView.as_view(), name="entities"),
    path("entities/<uuid:entity_id>", entities.EntityView.as_view(), name="entity"),
    path("entities/<uuid:entity_id>/links", entities.LinksView.as_view(), name="entity_links"),
    path("streams", streams.StreamsView.as_view(), name="streams"),
    path("streams/<uuid:stream_id>", streams.StreamView.as_view(), name="stream"),
    path("streams/<uuid:stream_id>/atoms", atoms.AtomsView.as_view(), name="stream_atoms"),
    path("streams/<uuid:stream_id>/consolidate", streams.ConsolidateView.as_view(), name="stream_consolidate"),
    path("streams/<uuid:stream_id>/undo", streams.UndoView.as_view(), name="stream_undo"),
    path(
        "streams/<uuid:stream_id>/retractions",
        shard_retractions.ShardRetractionsView.as_view(),
        name="stream_retractions",
    ),
    path(
        "streams/<uuid:stream_id>/retractions/<uuid:retraction_id>/undo",
        shard_retractions.UndoShardRetractionView.as_view(),
        name="stream_retraction_undo",
    ),
    path("facts", facts.FactsView.as_view(), name="facts"),
    path("facts/<uuid:fact_id>", facts.FactView.as_view(), name="fact"),
    path("facts/<uuid:fact_id>/sources", facts.FactSourcesView.as_view(), name="fact_sources"),
    path("corrections", facts.CorrectionsView.as_view(), name="corrections"),
    path("corrections/<uuid:correction_id>", facts.CorrectionView.as_view(), name="correction"),
    path("corrections/<uuid:correction_id>/undo", facts.UndoCorrectionView.as_view(), name="correction_undo"),
    path("coverage", coverage.CoverageView.as_view(), name="coverage"),
    path("probes", probes.ProbesView.as_view(), name="probes"),
    path("probes/run", probes.RunProbesView.as_view(), name="probes_run"),
    path("probes/<uuid:probe_id>", probes.ProbeView.as_view(), name="probe"),
    path("probes/<uuid:probe_id>/results", probes.ProbeResultsView.as_view(), name="probe_results"),
    path("prompts", prompts.PromptsView.as_view(), name="prompts"),
    path("prompts/<public_id:name>", prompts.PromptView.as_view(), name="prompt"),
    path("prompts/<public_id:name>/activate", prompts.ActivateView.as_view(), name="prompt_activate"),
    path("prompts/<public_id:name>/try", prompt_trials.TryView.as_view(), name="prompt_try"),
    path("prompts/<public_id:name>/versions", prompts.PromptVersionsView.as_view(), name="prompt_versions"),
    path(
        "prompts/<public_id:name>/versions/<int:version>",
        prompts.PromptVersionView.as_view(),
        name="prompt_version",
    ),
    path("retractions", retractions.RetractionsView.as_view(), name="retractions"),
    path("retractions/<uuid:retraction_id>", retractions.RetractionView.as_view(), name="retraction"),
    path("retractions/<uuid:retraction_id>/undo", retractions.UndoView.as_view(), name="retraction_undo"),
    path("jobs", jobs.JobsView.as_view(), name="jobs"),
    path("jobs/<uuid:job_id>", jobs.JobView.as_view(), name="job"),
    path("jobs/<uuid:job_id>/retry", jobs.JobRetryView.as_view(), name="job_retry"),
]
