"""Read statements from sentences: subject, attribute, value, start date, and whether they are held as true.

Model engines write sentences in the third person ("Nora moved to Bergen on 3 March 2026."); the engine without a model
quotes what people say of themselves ("Nora: I moved to Bergen"). Both are read alike, so what one of them says can end
what another said, whoever wrote them. Only what has one value at a time is known here: where somebody lives, what they
work as and where, their name, age and relationship, and what one of their own is called. The patterns rather miss a
sentence than misread one.
"""

from moments_app.engines.statements.dates import plan_ends, since_in
from moments_app.engines.statements.kinds import kind_of, worth_of
from moments_app.engines.statements.said import NAME, Statement, statement_of
from moments_app.engines.statements.unreal import is_question, is_unreal

__all__ = [
    "NAME",
    "Statement",
    "is_question",
    "is_unreal",
    "kind_of",
    "plan_ends",
    "since_in",
    "statement_of",
    "worth_of",
]
