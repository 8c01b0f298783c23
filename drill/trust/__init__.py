"""`make trust`: attacks a throw-away installation and writes the figures into docs/trust.md.

    calls.py       the operations over REST, MCP and chat, and requests generated from their schemas
    fuzz.py        random requests, none of which may get a 5xx
    contract.py    requests by schemathesis, which compares responses with the schema (its checks: accepted.py)
    isolation.py   one person requests another person's data, and must receive none
    held.py        concurrent writers on one session, and the highest sustained load
    page.py        the figures in docs/trust.md

`python -m drill` injects the kills, hangs and outages.
"""
