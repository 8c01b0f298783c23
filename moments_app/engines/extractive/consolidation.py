"""Write the text of a stream: its current lines, and each observation that no line repeats."""

from moments_app.engines.calls.consolidation import ConsolidationAnswer, ConsolidationRequest, DraftLine
from moments_app.engines.extractive.language import words
from moments_app.engines.extractive.sentences import says


def consolidate(request: ConsolidationRequest) -> ConsolidationAnswer:
    """Add the observations that no current line repeats."""
    lines = [DraftLine(text=line.text, carries=[line.label]) for line in request.lines]
    said = [set(words(line.text)) for line in lines]
    for observation in request.observations:  # a call has a few hundred at most, however long the text is
        own = set(words(observation.text))
        number = next((number for number, known in enumerate(said) if says(known, own)), None)
        if number is None:
            lines.append(DraftLine(text=f"- {observation.text}", carries=[observation.label]))
            said.append(own)
        else:
            lines[number].carries.append(observation.label)
    return ConsolidationAnswer(lines=lines)
