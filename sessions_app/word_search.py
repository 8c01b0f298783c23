"""Full-text search within one person's texts, ranked like BM25: what migrations add to a table for it.

PostgreSQL's index of words is over all rows, and a common word has more of them elsewhere than a person has in all. So
the index holds each word with the *scope* whose it is, `u12 paint` for the person with primary key 12, `s5 paint` for
the agent's stream 5: what is read is that scope's alone. The words are made by the application (`lexemes.py`) and
written with the text, by every table that is `Searched`. What was written otherwise has no words, or those of its text
before, or an older version's: triggers and the column `search_version` tell, and `index_words` indexes it.

The function `recall_<table>` ranks. BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009) with
k1 = 0.6 and b = 0.3: chat turns are short, and a word said twice says little more. `ts_rank` of a single word grows
with the square-number sums 1, 1.25, 1.36 … of its occurrences, which is BM25's saturation at that k1 within a few
per cent, and costs no unpacking of the vector.
"""

from collections.abc import Sequence
from typing import Any

from django.db.migrations import RunSQL

from sessions_app.row_security import ACTING, IS_REQUEST, ROLE

CONFIG = "english"  # by which vectors were made before version 1
MAX_CHARS = 50_000  # of a text; a vector's own limit is a megabyte
MOST_READ = 10_000  # rows ranked in one search, should the counts of words be far behind
ROWS = 100  # that a search is expected to return
PENDING = 256  # kB of new words that await being sorted into the index; each search reads them through
NEWEST = 500  # rows ranked where a query has but common words

# The same ranking where words were not counted, or long ago: how rare each is, is counted in what is found. What
# `ts_rank` says of n occurrences, Σ 1 / k² for k to n, is within a hundredth of what stands here.
_UNCOUNTED_SQL = """
    WITH stem AS (
        SELECT btrim(stem, '''') AS stem, term, weight
        FROM unnest($2, $4) WITH ORDINALITY terms (query, weight, term), regexp_split_to_table(query, ' ?[|] ?') stem
    ), candidate AS MATERIALIZED (%s
    ), said AS MATERIALIZED (
        SELECT candidate.id, stem.term, max(stem.weight) AS weight, max(cardinality(word.positions)) AS times
        FROM candidate, unnest(candidate.search_vector) word JOIN stem ON stem.stem = word.lexeme GROUP BY 1, 2
    ), size AS MATERIALIZED (
        SELECT (SELECT count(*) FROM (%s) text) AS texts, avg(length(search_vector)) AS average FROM candidate
    ), rarity AS MATERIALIZED (
        SELECT term, ln(1 + (greatest(texts, count(*)) - count(*) + 0.5) / (count(*) + 0.5)) AS rarity
        FROM said, size GROUP BY term, texts
    ), score AS (
        SELECT id, sum(weight * rarity * (1.645 - 1 / (times + 0.55))) AS score
        FROM said JOIN rarity USING (term) GROUP BY id
    )
    SELECT id, (score * 1.6 / (1 + 0.6 * (0.7 + 0.3 * length(search_vector) / average)))::float8 AS score
    FROM score JOIN candidate USING (id), size ORDER BY 2 DESC, %s DESC, id DESC LIMIT $6
"""

CREATE_FUNCTIONS = RunSQL(
    sql="""
        CREATE FUNCTION memory_words(scope text, vector tsvector) RETURNS text[]
        LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
            SELECT COALESCE(array_agg(scope || ' ' || lexeme), '{}') FROM unnest(tsvector_to_array(vector)) lexeme
        $$;
    """,
    reverse_sql="DROP FUNCTION memory_words(text, tsvector)",
)


# What it costs to read a row's words, so that the index is preferred however small the table is: 25 µs.
PRICE_FUNCTION = RunSQL(
    sql="ALTER FUNCTION memory_words(text, tsvector) COST 1000",
    reverse_sql="ALTER FUNCTION memory_words(text, tsvector) COST 100",
)

# A row's words are not those of its text: it is to be indexed.
CREATE_TRIGGER_FUNCTION = RunSQL(
    sql="""
        CREATE FUNCTION memory_words_outdated() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN NEW.search_version := 0; RETURN NEW; END $$;
    """,
    reverse_sql="DROP FUNCTION memory_words_outdated()",
)


def add_search_vector(table: str, text: str) -> RunSQL:
    """A migration operation: the column `search_vector` of a text, generated as it was before version 1."""
    return RunSQL(sql=_generated(table, [text]), reverse_sql=f"ALTER TABLE {table} DROP COLUMN search_vector")


def write_search_vector(table: str, texts: Sequence[str], *indexes: str) -> RunSQL:
    """A migration operation: the words of a table's texts are written by the application from now on.

    Neither the table nor an index is read or written for it: a row keeps the words it has until `index_words` comes.

    Args:
        table, texts: by their names in the database.
        indexes: SQL that creates the indexes of the words, for the way back.
    """
    changed = " OR ".join(f"NEW.{text} IS DISTINCT FROM OLD.{text}" for text in texts)
    is_empty = " AND ".join(f"NEW.{text} = ''" for text in texts)
    kept = "NEW.search_vector IS NOT DISTINCT FROM OLD.search_vector"
    return RunSQL(
        sql=f"""
            ALTER TABLE {table} ALTER COLUMN search_vector DROP EXPRESSION;
            ALTER TABLE {table} ADD COLUMN search_version smallint DEFAULT 0 NOT NULL;
            CREATE TRIGGER words_missing BEFORE INSERT ON {table} FOR EACH ROW
                WHEN (NEW.search_vector IS NULL AND NEW.search_version > 0) EXECUTE FUNCTION memory_words_outdated();
            CREATE TRIGGER words_outdated BEFORE UPDATE OF {", ".join(texts)} ON {table} FOR EACH ROW
                WHEN (({changed}) AND NOT ({is_empty}) AND {kept}) EXECUTE FUNCTION memory_words_outdated();
        """,
        reverse_sql=f"""
            DROP TRIGGER words_outdated ON {table};
            DROP TRIGGER words_missing ON {table};
            ALTER TABLE {table} DROP COLUMN search_version, DROP COLUMN search_vector;
            {_generated(table, texts)};
            {"; ".join(indexes)}
        """,
    )


def _generated(table: str, texts: Sequence[str]) -> str:
    joined = " || ' ' || ".join(texts)
    return f"""
        ALTER TABLE {table} ADD COLUMN search_vector tsvector
        GENERATED ALWAYS AS (to_tsvector('{CONFIG}', left({joined}, {MAX_CHARS}))) STORED
    """


def words_index(table: str, *, scope: str, condition: str = "true") -> str:
    """SQL that creates the index of a table's words by scope."""
    index = f"CREATE INDEX {table}_words ON {table} USING gin ({_words(scope)})"
    return f"{index} WITH (gin_pending_list_limit = {PENDING}) WHERE {condition}"


def recall(table: str, *, scope: str, time: str, condition: str = "true") -> RunSQL:
    """A migration operation: the index of a table's words by scope, and the function that ranks its rows.

    `recall_<table>` takes the person's primary key, the scopes, the query's words that are rare (any of which makes a
    row a candidate), words of which a candidate has all, whether the person's newest rows with any word are candidates
    too (where no word is rare), every word as a `tsquery` of all that it may be indexed under, with its weight, the
    average number of words in a row, the earliest time, and the most rows wanted. Of what a word may be indexed under,
    the best counts; what stands there without spaces around `|` is ranked together. It returns ids with their score,
    best first, the newer first where two are equal. Without an average it counts for itself how rare each word is among
    the candidates, and weights are factors of that. Nor by parallel workers: to start them takes longer than to rank.

    Under row security `@@` and `&&` can't use an index, for they are not leakproof. The function runs as the tables'
    owner and holds the line itself: whoever the caller names, a request finds its acting user's rows and those that
    are everybody's.

    Args:
        table: with a column `search_vector`, and `user_id`.
        scope: SQL of a row's scope.
        time: column of the time by which the newer is told.
        condition: SQL of the rows that can be found.
    """
    index = words_index(table, scope=scope, condition=condition)
    function = _recall_sql(table, scope=scope, time=time, condition=condition)
    return RunSQL(
        sql=f"{index}; {function}",
        reverse_sql=f"DROP FUNCTION recall_{table}; DROP INDEX {table}_words",
    )


def recall_anew(table: str, *, scope: str, time: str, condition: str, before: str) -> RunSQL:
    """A migration operation: makes `recall_<table>` anew, as it is written below and for a condition that is as narrow
    as before, or narrower.

    The index stays: what it holds may be a little more.

    Args:
        table, scope, time: as they were.
        condition: SQL of the rows that can be found.
        before: what it was, which the new one must imply.
    """
    return RunSQL(
        sql=_recall_sql(table, scope=scope, time=time, condition=condition),
        reverse_sql=_recall_sql(table, scope=scope, time=time, condition=before),
    )


def swap_index(table: str, *, scope: str, condition: str, before: str) -> RunSQL:
    """A migration operation, of one that is not atomic: makes the index of a table's words anew, for other rows.

    Searches go on meanwhile: the old index is there until the new one is.

    Args:
        table, scope: as they were.
        condition: SQL of the rows in it, from now on.
        before: what it was.
    """
    return RunSQL(sql=_swap_sql(table, scope, condition), reverse_sql=_swap_sql(table, scope, before))


def _swap_sql(table: str, scope: str, condition: str) -> list[Any]:
    """A build that was interrupted leaves an index that is not valid: it is begun anew."""
    index = f"{table}_words"
    return [
        f"DROP INDEX CONCURRENTLY IF EXISTS {index}_anew",
        f"CREATE INDEX CONCURRENTLY {index}_anew ON {table} USING gin ({_words(scope)}) "
        f"WITH (gin_pending_list_limit = {PENDING}) WHERE {condition}",
        f"DROP INDEX CONCURRENTLY IF EXISTS {index}",
        f"ALTER INDEX {index}_anew RENAME TO {index}",
    ]


def _words(scope: str) -> str:
    return f"public.memory_words({scope}, search_vector)"


def _recall_sql(table: str, *, scope: str, time: str, condition: str) -> str:
    """The function, made or replaced, and who may call it."""
    words = _words(scope)
    read = f"id, search_vector, {time}"
    seen = f"{condition} AND ($5 IS NULL OR {time} >= $5)"
    return f"""
            CREATE OR REPLACE FUNCTION recall_{table}(
                person bigint, scopes text[], rare text[], joint text[], with_newest boolean, queries text[],
                weights float8[], average float8, since timestamptz, most integer
            ) RETURNS TABLE (found bigint, score float8)
            LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS {ROWS}
            SET search_path FROM CURRENT SET max_parallel_workers_per_gather = 0 AS $$
            DECLARE
                is_request boolean := {IS_REQUEST};
                acting bigint := CASE WHEN is_request THEN {ACTING} ELSE person END;
                own text := 'u' || acting;
                seen text[] := ARRAY(SELECT s FROM unnest(scopes) s WHERE NOT is_request OR s = own OR s LIKE 's%');
                any_rare text[] := ARRAY(SELECT s || ' ' || word FROM unnest(seen) s, unnest(rare) word);
                all_joint text[] := ARRAY(SELECT own || ' ' || word FROM unnest(joint) word);
                formula text := (
                    SELECT string_agg(format('%s * greatest(%s)', weight, ranks), ' + ')
                    FROM unnest(queries, weights) terms (query, weight), LATERAL (
                        -- Of those that stand together hardly two are in a text, and `ts_rank` divides by all.
                        SELECT string_agg(
                            format('ts_rank(search_vector, %L::tsquery) * %s', stems, 1 + length(stems)
                                - length(replace(stems, '|', ''))), ', '
                        ) AS ranks
                        FROM unnest(string_to_array(query, ' | ')) stems
                    ) forms
                );
                candidates text := $q$SELECT {read} FROM {table} WHERE {words} && $1 AND {seen} LIMIT {MOST_READ}$q$;
            BEGIN
                IF formula IS NULL THEN RETURN; END IF;
                IF average IS NULL THEN
                    RETURN QUERY EXECUTE format($q${_UNCOUNTED_SQL}$q$, candidates,
                        $q$SELECT FROM {table} WHERE user_id = $3 AND {condition} LIMIT {MOST_READ}$q$,
                        '{time}'
                    ) USING any_rare, queries, acting, weights, since, most;
                    RETURN;
                END IF;
                IF with_newest THEN
                    -- An array and no subquery: the planner would expect thousands, and read the table for them.
                    candidates := $q$SELECT {read} FROM {table} WHERE id = ANY (ARRAY(
                        (SELECT id FROM {table} WHERE {words} && $1 AND {seen} LIMIT {MOST_READ})
                        UNION
                        (SELECT id FROM {table} WHERE $2 <> '{{}}' AND {words} @> $2 AND {seen} LIMIT {MOST_READ})
                        UNION
                        (SELECT id FROM {table} WHERE user_id = $3 AND search_vector @@ $4 AND {seen}
                         ORDER BY {time} DESC, id DESC LIMIT {NEWEST})
                    ))$q$;
                END IF;
                RETURN QUERY EXECUTE format(
                    'SELECT id, (%s) * 16.449 * 1.6 / (1 + 0.6 * (0.7 + 0.3 * length(search_vector) / $6)) AS score
                     FROM (%s) candidate ORDER BY score DESC, {time} DESC, id DESC LIMIT $7', formula, candidates
                ) USING any_rare, all_joint, acting, array_to_string(queries, ' | ')::tsquery, since,
                    greatest(average, 1.0), most;
            END $$;
            REVOKE ALL ON FUNCTION recall_{table} FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION recall_{table} TO {ROLE};
        """  # noqa: S608 (names of our own tables)
