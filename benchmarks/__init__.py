"""Speed benchmarks: `python -m benchmarks [append] [load] [build]` prints the figures as Markdown tables.

Each figure is compared with the same work done by a few lines of psycopg (`raw.py`) in alternation in the same run, so
that the ratio means something on any machine. Nothing here fails for being slow.

`python -m benchmarks.recall_quality FOLDER` measures something else: how well memory is found again.
"""
