"""What a sentence in the third person says of whom: the attribute that it gives a value, and since when.

Both engines write such sentences ("Nora moved to Bergen on 3 March 2026."), so what one of them says can end what
another said, whoever wrote them. Only what has one value at a time is known here: where somebody lives, what they work
as and where, their name, age and relationship, and what one of their own is called. The patterns know English, and
rather miss a sentence than misread one.
"""

from moments_app.engines.statements.durable import worth_of
from moments_app.engines.statements.kinds import kind_of
from moments_app.engines.statements.said import NAME, Statement, statement_of
from moments_app.engines.statements.since import since_in

__all__ = ["NAME", "Statement", "kind_of", "since_in", "statement_of", "worth_of"]
