"""The text of a stream: its lines so far and the observations, each a line unless one says it already."""

from moments_app.engines.calls.consolidation import ConsolidationAnswer, ConsolidationRequest, DraftLine
from moments_app.engines.extractive.sentences import says


def consolidate(request: ConsolidationRequest) -> ConsolidationAnswer:
    """Add to the lines so far what none of them says."""
    lines = [DraftLine(text=line.text, carries=[line.label]) for line in request.lines]
    for observation in request.observations:
        line = next((line for line in lines if says(line.text, observation.text)), None)
        if line is None:
            lines.append(DraftLine(text=f"- {observation.text}", carries=[observation.label]))
        else:
            line.carries.append(observation.label)
    return ConsolidationAnswer(lines=lines)
