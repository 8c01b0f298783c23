"""Full-text search within one person's texts, ranked like BM25: the objects that migrations add to a table for it.

A plain PostgreSQL index of words covers all rows, and a common word occurs in more rows of other people than one person
has. So this index stores each word with its *scope*: `u12 paint` for the person with primary key 12, `s5 paint` for the
agent's stream 5. A search reads only its scopes. The application computes the words (`lexemes.py`), and every
`Searched` table stores them with the text. If a row was written without the application, for example with SQL, its
words are missing or outdated. Triggers and the column `search_version` mark such rows, and `index_words` indexes them.

The function `recall_<table>` ranks by BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009) with
k1 = 0.6 and b = 0.3, because chat turns are short and repeating a word adds little. `ts_rank` of a single word grows
with its occurrences like the sums of inverse squares 1, 1.25, 1.36 …, which matches BM25's saturation at that k1
within a few percent and doesn't need to unpack the vector.
"""

from django.db.migrations import RunSQL

from sessions_app.limited_operators import OPERATOR_ROLE
from sessions_app.row_security import ACTING, IS_REQUEST, ROLE

MOST_READ = 10_000  # most rows ranked in one search, in case the word counts are far behind
ROWS = 100  # rows that the planner expects from a search
NEWEST = 500  # newest rows ranked if a query has only common words
PENDING = 256  # kB of new words that wait to be sorted into the index; each search scans them


# The same ranking for words without recent counts. The rarity of a word is its rarity among the candidates. For n
# occurrences, `ts_rank` is proportional to Σ 1 / k² for k up to n. The expression `1.645 - 1 / (times + 0.55)` differs
# from this sum by less than 0.01.
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


def words_written(table: str, *texts: str) -> RunSQL:
    """Return a migration operation that creates the triggers that mark rows with missing or outdated words.

    Args:
        table, texts: Names of the table and its text columns in the database.
    """
    changed = " OR ".join(f"NEW.{text} IS DISTINCT FROM OLD.{text}" for text in texts)
    is_empty = " AND ".join(f"NEW.{text} = ''" for text in texts)
    kept = "NEW.search_vector IS NOT DISTINCT FROM OLD.search_vector"
    return RunSQL(
        f"""
            CREATE TRIGGER words_missing BEFORE INSERT ON {table} FOR EACH ROW
                WHEN (NEW.search_vector IS NULL AND NEW.search_version > 0) EXECUTE FUNCTION memory_words_outdated();
            CREATE TRIGGER words_outdated BEFORE UPDATE OF {", ".join(texts)} ON {table} FOR EACH ROW
                WHEN (({changed}) AND NOT ({is_empty}) AND {kept}) EXECUTE FUNCTION memory_words_outdated();
        """
    )


def words_index(table: str, *, scope: str, condition: str = "true", name: str = "words") -> RunSQL:
    """Return a migration operation that creates the index of a table's words by scope."""
    index = f"CREATE INDEX {table}_{name} ON {table} USING gin ({_words(scope)})"
    return RunSQL(f"{index} WITH (gin_pending_list_limit = {PENDING}) WHERE {condition}")


def _words(scope: str) -> str:
    return f"public.memory_words({scope}, search_vector)"


def recall(table: str, *, scope: str, time: str, condition: str = "true", shards: str = "s LIKE 's%'") -> RunSQL:
    """Return a migration operation that creates the function that ranks rows.

    The parameters of `recall_<table>` are, in order:

    - the person's primary key, and the scopes;
    - the rare words of the query: a row with any of them is a candidate;
    - joint words: a row with all of them is a candidate;
    - whether the person's newest rows with any word are also candidates, for a query without rare words;
    - each word as a `tsquery` of its possible stems, and the weights of the words;
    - the average number of words in a row, the earliest time, and the maximum number of rows.

    For each word, only the stem with the highest rank counts. Stems joined by `|` without spaces are ranked together.
    The function returns ids with their scores, best first. Among equal scores, newer rows come first. If the average is
    NULL, the function computes the rarity of each word among the candidates, and multiplies the weights by it. It uses
    no parallel workers, because starting them takes longer than ranking.

    Under row security, `@@` and `&&` can't use an index, because they aren't leakproof. So the function runs as the
    tables' owner and enforces row security itself. A request finds only shared rows and rows of its acting user, even
    if the caller passes another person.

    Args:
        table: A table with the columns `search_vector` and `user_id`.
        scope: SQL of a row's scope.
        time: The column that tells which row is newer.
        condition: SQL of the rows that can be found.
        shards: SQL condition that is true if a request may search the shared rows of scope `s`.
    """
    words = _words(scope)
    uncounted = _UNCOUNTED_SQL.replace(
        "max(cardinality(word.positions))", "COALESCE(max(cardinality(word.positions)), 1)"
    )
    read = f"id, search_vector, {time}"
    seen = f"{condition} AND ($5 IS NULL OR {time} >= $5)"
    return RunSQL(
        f"""
            CREATE FUNCTION recall_{table}(
                person bigint, scopes text[], rare text[], joint text[], with_newest boolean, queries text[],
                weights float8[], average float8, since timestamptz, most integer
            ) RETURNS TABLE (found bigint, score float8)
            LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS {ROWS}
            SET search_path = pg_catalog, public, pg_temp SET max_parallel_workers_per_gather = 0 AS $$
            DECLARE
                is_request boolean := {IS_REQUEST};
                acting bigint := CASE WHEN is_request THEN {ACTING} ELSE person END;
                own text := 'u' || acting;
                seen text[] := ARRAY(SELECT s FROM unnest(scopes) s WHERE NOT is_request OR s = own OR {shards});
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
                    RETURN QUERY EXECUTE format($q${uncounted}$q$, candidates,
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
            GRANT EXECUTE ON FUNCTION recall_{table} TO {ROLE}, {OPERATOR_ROLE};
        """  # noqa: S608 (names of our own tables)
    )


def then(function: str, since: str, until: str) -> RunSQL:
    """Return a migration operation that creates `<function>_then`, which searches as of an earlier time, `until`.

    Args:
        function: The function that searches the current rows.
        since: Its condition for the earliest time.
        until: SQL of a further condition, with `{until}` for the time.
    """
    until = until.format(until="current_setting('memory.until')::timestamptz")
    return RunSQL(
        f"""
            DO $do$ DECLARE
                made text := pg_get_functiondef('{function}'::regproc);
                changes text[] := ARRAY[
                    ['{function}(', '{function}_then('],
                    ['most integer)', 'most integer, until timestamp with time zone)'],
                    ['BEGIN', 'BEGIN PERFORM set_config(''memory.until'', until::text, true);'],
                    [$s${since}$s$, $s${since} AND {until}$s$]
                ];
                part text[];
            BEGIN
                FOREACH part SLICE 1 IN ARRAY changes LOOP
                    IF strpos(made, part[1]) = 0 THEN RAISE EXCEPTION '{function} has no %', part[1]; END IF;
                    made := replace(made, part[1], part[2]);
                END LOOP;
                EXECUTE made;
            END $do$;
            REVOKE ALL ON FUNCTION {function}_then FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION {function}_then TO {ROLE};
        """
    )


def by_index(table: str) -> RunSQL:
    """Return a migration operation after which `recall_<table>` and `recall_<table>_then` never read the whole table.

    The planner estimates the same cost of `&&` for one word and for hundreds. With many words, or before the first
    ANALYZE, it would read every row. Comparing the words of 3,000 rows with 170 stems takes 180 ms. With the index, it
    takes 1 ms.
    """
    functions = (f"recall_{table}", f"recall_{table}_then")
    return RunSQL("; ".join(f"ALTER FUNCTION {name} SET enable_seqscan = off" for name in functions))


def unpacked_once(table: str) -> RunSQL:
    """Return a migration operation that makes `recall_<table>` and its `_then` unpack each candidate's words only once.

    Each call of `ts_rank` copies the stored vector, and decompresses a long one. Concatenating an empty vector makes
    one unpacked copy for all calls. For a query of 11 words, this saves a third of the time. Without `OFFSET 0`, the
    planner would repeat the concatenation in each call.
    """
    changes = {
        "candidates text := $q$SELECT id, search_vector,": "candidates text := $q$SELECT id, {copy},",
        "candidates := $q$SELECT id, search_vector,": "candidates := $q$SELECT id, {copy},",
        "LIMIT {newest})\n                    ))$q$;": "LIMIT {newest})\n                    )) OFFSET 0$q$;",
    }
    names = {"copy": "search_vector || ''::tsvector AS search_vector", "newest": NEWEST}
    pairs = ", ".join(f"[$s${old.format(**names)}$s$, $s${new.format(**names)}$s$]" for old, new in changes.items())
    return RunSQL(
        f"""
            DO $do$ DECLARE
                name text;
                made text;
                part text[];
            BEGIN
                FOREACH name IN ARRAY ARRAY['recall_{table}', 'recall_{table}_then'] LOOP
                    made := pg_get_functiondef(name::regproc);
                    FOREACH part SLICE 1 IN ARRAY ARRAY[{pairs}] LOOP
                        IF strpos(made, part[1]) = 0 THEN RAISE EXCEPTION '% has no %', name, part[1]; END IF;
                        made := replace(made, part[1], part[2]);
                    END LOOP;
                    EXECUTE made;
                END LOOP;
            END $do$;
        """
    )
