"""`python -m drill.poison`: plant text that must not reach other people, through every entry point of a test site.

    attacks.py     what is said, a class of attack each
    obedient.py    a model that does whatever it reads
    doors.py       the ways in: REST, MCP, the chat endpoint, imports
    views.py       what a person gets of memory, by every way out
    fences.py      whether text in a context can be taken for more than text
    course.py      people with a past; planting, looking, retracting, comparing
    report.py      a row an attack and door, and the table

Nothing here touches the installation that it is run in.
"""
