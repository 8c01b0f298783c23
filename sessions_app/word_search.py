"""Full-text search within one person's texts, ranked like BM25: what migrations add to a table for it.

PostgreSQL's index of words is over all rows, and a common word has more of them elsewhere than a person has in all. So
the index holds each word with the *scope* whose it is, `u12 paint` for the person with primary key 12, `s5 paint` for
the agent's stream 5: what is read is that scope's alone. The words stand in a generated column, so no way of writing
a row can leave it out of the index.

The function `recall_<table>` ranks. BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009) with
k1 = 0.6 and b = 0.3: chat turns are short, and a word said twice says little more. `ts_rank` of a single word grows
with the square-number sums 1, 1.25, 1.36 … of its occurrences, which is BM25's saturation at that k1 within a few
per cent, and costs no unpacking of the vector.
"""

from typing import Any

from django.db.migrations import RunSQL

from sessions_app.row_security import ACTING, IS_REQUEST, ROLE

CONFIG = "english"
MAX_CHARS = 50_000  # of a text; a vector's own limit is a megabyte
MOST_READ = 10_000  # rows ranked in one search, should the counts of words be far behind
ROWS = 100  # that a search is expected to return
PENDING = 256  # kB of new words that await being sorted into the index; each search reads them through
NEWEST = 500  # rows ranked where a query has but common words

CREATE_FUNCTIONS = RunSQL(
    sql="""
        CREATE FUNCTION memory_words(scope text, vector tsvector) RETURNS text[]
        LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
            SELECT COALESCE(array_agg(scope || ' ' || lexeme), '{}') FROM unnest(tsvector_to_array(vector)) lexeme
        $$;
    """,
    reverse_sql="DROP FUNCTION memory_words(text, tsvector)",
)


def add_search_vector(table: str, text: str) -> RunSQL:
    """A migration operation: the generated column `search_vector` of a text.

    It stands in no Django model: nothing but searches reads it, and every other read would carry it along.
    """
    return RunSQL(
        sql=f"""
            ALTER TABLE {table} ADD COLUMN search_vector tsvector
            GENERATED ALWAYS AS (to_tsvector('{CONFIG}', left({text}, {MAX_CHARS}))) STORED
        """,
        reverse_sql=f"ALTER TABLE {table} DROP COLUMN search_vector",
    )


def recall(table: str, *, scope: str, time: str, condition: str = "true") -> RunSQL:
    """A migration operation: the index of a table's words by scope, and the function that ranks its rows.

    `recall_<table>` takes the person's primary key, the scopes, the query's words that are rare (any of which makes a
    row a candidate), words of which a candidate has all, whether the person's newest rows with any word are candidates
    too (where no word is rare), every word as a `tsquery` with its weight, the average number of words in a row, the
    earliest time, and the most rows wanted. It returns ids with their score, best first, the newer first where two are
    equal.

    Under row security `@@` and `&&` can't use an index, for they are not leakproof. The function runs as the tables'
    owner and holds the line itself: whoever the caller names, a request finds its acting user's rows and those that
    are everybody's.

    Args:
        table: with a column `search_vector`, and `user_id`.
        scope: SQL of a row's scope.
        time: column of the time by which the newer is told.
        condition: SQL of the rows that can be found.
    """
    words = _words(scope)
    index = f"CREATE INDEX {table}_words ON {table} USING gin ({words}) WITH (gin_pending_list_limit = {PENDING})"
    function = _recall_sql(table, scope=scope, time=time, condition=condition)
    return RunSQL(
        sql=f"{index} WHERE {condition}; {function}",
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
    seen = f"{condition} AND ($5 IS NULL OR {time} >= $5)"
    return f"""
            CREATE OR REPLACE FUNCTION recall_{table}(
                person bigint, scopes text[], rare text[], joint text[], with_newest boolean, queries text[],
                weights float8[], average float8, since timestamptz, most integer
            ) RETURNS TABLE (found bigint, score float8)
            LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS {ROWS} SET search_path FROM CURRENT AS $$
            DECLARE
                is_request boolean := {IS_REQUEST};
                acting bigint := CASE WHEN is_request THEN {ACTING} ELSE person END;
                own text := 'u' || acting;
                seen text[] := ARRAY(SELECT s FROM unnest(scopes) s WHERE NOT is_request OR s = own OR s LIKE 's%');
                any_rare text[] := ARRAY(SELECT s || ' ' || word FROM unnest(seen) s, unnest(rare) word);
                all_joint text[] := ARRAY(SELECT own || ' ' || word FROM unnest(joint) word);
                formula text := (
                    SELECT string_agg(format('%s * ts_rank(search_vector, %L::tsquery)', weight, query), ' + ')
                    FROM unnest(queries, weights) terms (query, weight)
                );
                candidates text := $q$SELECT * FROM {table} WHERE {words} && $1 AND {seen} LIMIT {MOST_READ}$q$;
            BEGIN
                IF formula IS NULL THEN RETURN; END IF;
                IF with_newest THEN
                    -- An array and no subquery: the planner would expect thousands, and read the table for them.
                    candidates := $q$SELECT * FROM {table} WHERE id = ANY (ARRAY(
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
