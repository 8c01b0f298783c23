"""Probes with their results, and trials of prompts over samples."""

from memory_extras.lab.models.probe import Probe, ProbeResult
from memory_extras.lab.models.prompt_trial import PromptTrial, TrialSide

__all__ = ["Probe", "ProbeResult", "PromptTrial", "TrialSide"]
