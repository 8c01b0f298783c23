"""`python -m drill.poison`: plant text that must not reach other people, through every entry point of a test site.

    attacks.py     the planted texts, by class of attack
    obedient.py    a model that obeys everything it reads
    doors.py       the entry points: REST, MCP, the chat endpoint, imports
    views.py       what a person receives from memory, through every interface
    fences.py      whether text in a context can be taken for markup or instructions
    course.py      the drill: create people, plant, check, retract, compare
    report.py      a row per attack and entry point, and the table

The drill doesn't touch the installation that it runs in.
"""
