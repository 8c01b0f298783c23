"""The admin's lists: one module per entry of the sidebar."""

from moments_app.operator.admin.atom import EntityAdmin, KnownPersonAdmin, MemoryAtomAdmin, StoredItemAdmin
from moments_app.operator.admin.correction import ContradictionAdmin, CorrectionAdmin, RetractionAdmin
from moments_app.operator.admin.engine_call import EmbeddingModelAdmin, EngineCallAdmin
from moments_app.operator.admin.failure import CircuitAdmin, FailureGroupAdmin
from moments_app.operator.admin.job import JobAdmin, ScheduleAdmin
from moments_app.operator.admin.moment import MomentAdmin
from moments_app.operator.admin.prompt import PromptResourceAdmin
from moments_app.operator.admin.release import ReleaseAdmin
from moments_app.operator.admin.session import ArchiveAdmin, ContextReceiptAdmin, SessionAdmin, SummaryAdmin
from moments_app.operator.admin.stream import MemoryStreamAdmin
from moments_app.operator.admin.user_profile import UserProfileAdmin
from moments_app.operator.admin.webhook import WebhookDeliveryAdmin, WebhookEndpointAdmin

__all__ = [
    "ArchiveAdmin",
    "CircuitAdmin",
    "ContextReceiptAdmin",
    "ContradictionAdmin",
    "CorrectionAdmin",
    "EmbeddingModelAdmin",
    "EngineCallAdmin",
    "EntityAdmin",
    "FailureGroupAdmin",
    "JobAdmin",
    "KnownPersonAdmin",
    "MemoryAtomAdmin",
    "MemoryStreamAdmin",
    "MomentAdmin",
    "PromptResourceAdmin",
    "ReleaseAdmin",
    "RetractionAdmin",
    "ScheduleAdmin",
    "SessionAdmin",
    "StoredItemAdmin",
    "SummaryAdmin",
    "UserProfileAdmin",
    "WebhookDeliveryAdmin",
    "WebhookEndpointAdmin",
]
