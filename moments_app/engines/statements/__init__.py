"""Parse statements in sentences. A statement has a subject, an attribute, a value and a start date.

Model engines write sentences in the third person ("Nora moved to Bergen on 3 March 2026."). The engine without a model
quotes the first person ("Nora: I moved to Bergen"). Both are parsed in the same way, so a statement from one engine can
end a statement from the other. Only attributes with one value at a time are parsed: home, occupation and employer,
name, age, relationship, and the names of relatives and pets. It is better to miss a sentence than to misread one, so
the patterns are strict.
"""

from moments_app.engines.statements.dates import plan_ends, since_in
from moments_app.engines.statements.said import NAME, Statement, is_question, is_unreal, kind_of, statement_of, worth_of

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
