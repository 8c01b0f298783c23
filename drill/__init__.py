"""`python -m drill`: inject faults into a throw-away installation, and compare what it stores with a ledger.

    site.py        the installation: `manage.py run` on a data directory of its own
    provider.py    the models it asks, which fail when told to
    load.py        clients that append and chat, and write what was acknowledged into the ledger
    acts.py        clients that do what is to be done once, and how often it was done
    ledger.py      what has to be stored, against what is
    watch.py       a prober beside a stall, and who is told that something is wrong
    report.py      a row a fault, and the table
    faults/        a module a fault
    poison/        attacks by what people say: `python -m drill.poison`
    trust/         both, with fuzzing and isolation probes, into docs/trust.md: `make trust`

Nothing here touches the installation that it is run in.
"""
