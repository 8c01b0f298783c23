"""The tables of memory, one module per concept."""

from moments_app.models.atom import MemoryAtom
from moments_app.models.circuit import Circuit
from moments_app.models.context_receipt import ContextReceipt, ContextUsage, OwnText, ServedLine
from moments_app.models.correction import Cause, Contradiction, CorrectedTurn, Correction, StatementChange
from moments_app.models.embedding import EmbeddingModel, FactEmbedding, ItemEmbedding, MomentEmbedding, TurnEmbedding
from moments_app.models.engine_call import EngineCall, FailureGroup, FailureHour, KeptExchange
from moments_app.models.entity import Entity, EntityLink
from moments_app.models.job import Job
from moments_app.models.known_person import KnownPerson
from moments_app.models.moment import EpisodeDraft, Moment
from moments_app.models.prompt import PromptResource, PromptVersion
from moments_app.models.release import Release, ReleaseSource
from moments_app.models.retraction import RetractedItem, Retraction
from moments_app.models.stored_item import StoredItem
from moments_app.models.stream import MemoryStream
from moments_app.models.summary import Summary
from moments_app.models.vocabulary import Vocabulary, Word
from moments_app.models.webhook import WebhookDelivery, WebhookEndpoint

__all__ = [
    "Cause",
    "Circuit",
    "ContextReceipt",
    "ContextUsage",
    "Contradiction",
    "CorrectedTurn",
    "Correction",
    "EmbeddingModel",
    "EngineCall",
    "Entity",
    "EntityLink",
    "EpisodeDraft",
    "FactEmbedding",
    "FailureGroup",
    "FailureHour",
    "ItemEmbedding",
    "Job",
    "KeptExchange",
    "KnownPerson",
    "MemoryAtom",
    "MemoryStream",
    "Moment",
    "MomentEmbedding",
    "OwnText",
    "PromptResource",
    "PromptVersion",
    "Release",
    "ReleaseSource",
    "RetractedItem",
    "Retraction",
    "ServedLine",
    "StatementChange",
    "StoredItem",
    "Summary",
    "TurnEmbedding",
    "Vocabulary",
    "WebhookDelivery",
    "WebhookEndpoint",
    "Word",
]
