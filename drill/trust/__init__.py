"""`make trust`: attacks a throw-away installation and writes the figures into docs/trust.md.

    calls.py       the operations that there are, over REST, MCP and chat, and requests made of their descriptions
    fuzz.py        requests of every kind of nonsense; none may be answered 5xx
    contract.py    requests made of it by schemathesis, whose answers are held against it; accepted.py is its check
    isolation.py   one person asks for another's; nothing may come back
    held.py        writers on one session, and the highest load that is held
    page.py        the figures in docs/trust.md

`python -m drill` injects the kills, hangs and outages.
"""
