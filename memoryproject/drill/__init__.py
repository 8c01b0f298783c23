"""`manage.py drill`: a throw-away installation is hurt in every way that is known, and a ledger says what came of it.

    site.py        the installation: `manage.py run` on a data directory of its own
    provider.py    the models it asks, which fail when told to
    load.py        clients that append and chat, and write what was acknowledged into the ledger
    acts.py        clients that do what is to be done once, and how often it was done
    ledger.py      what has to be stored, against what is
    watch.py       a prober beside a stall, and who is told that something is wrong
    report.py      a row a fault, and the table
    faults/        a module a fault

Nothing here touches the installation that it is run in.
"""
