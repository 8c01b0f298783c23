"""`python -m drill`: inject faults into a throw-away installation, and compare what it stores with a ledger.

    site.py        the installation: `manage.py run` with its own data directory
    provider.py    a test server for its models, which fails on request
    load.py        clients that append and chat, and record acknowledged turns in the ledger
    acts.py        clients whose actions must take effect exactly once
    ledger.py      the comparison of acknowledged and stored turns
    watch.py       a prober during a stall, and a check of who is notified
    report.py      a row per fault, and the table
    faults/        one module per fault
    poison/        attacks by message texts: `python -m drill.poison`
    trust/         both, with fuzzing and isolation probes, into docs/trust.md: `make trust`

The drill doesn't touch the installation that it runs in.
"""
