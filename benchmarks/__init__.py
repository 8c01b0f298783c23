"""Speed benchmarks: `python -m benchmarks [append] [build] [context]` prints the figures as Markdown tables.

Each figure is compared with the same work done by a few lines of psycopg (`raw.py`), in alternation in the same run, so
the ratio is meaningful on any machine. No benchmark fails because it is slow.

`python -m benchmarks.recall_quality FOLDER` measures something else: how well memory finds what it stores.
"""
