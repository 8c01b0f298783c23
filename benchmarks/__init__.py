"""How fast it is: `python -m benchmarks [append] [load] [build]` prints the figures as Markdown tables.

Each figure stands next to the same work done by a few lines of psycopg (`raw.py`) in the same run, turn by turn, so
that a ratio means something on any machine. Nothing here fails for being slow.

How well memory is found again is another question: `python -m benchmarks.recall_quality FOLDER`.
"""
