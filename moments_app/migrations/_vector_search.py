"""Semantic search within one person's vectors: the functions that migrations create for it."""

from django.db.migrations import RunSQL

from sessions_app.limited_operators import OPERATOR_ROLE
from sessions_app.migrations._word_search import ROWS
from sessions_app.row_security import PERSON, ROLE

# Below this number of vectors, a search reads all vectors of a person, which is exact and takes about 2 µs each. An
# index scan is slower if most of the vectors that it visits belong to other people. For a person with one percent of a
# million vectors, it takes five times as long, although the planner estimates a lower cost.
EXACT = 20_000


def nearest(table: str, *, shards_of: str = "", seen_shards: str = "shards") -> RunSQL:
    """Return a migration operation that creates the function `nearest_<table>`, which searches vectors for requests.

    Its parameters are, in order:

    - the person's primary key, and the shards;
    - the model's primary key, and the number of its dimensions;
    - the query's vector, the earliest time, and the maximum number of rows.

    It returns the ids of the sources with their cosine similarity, best first.

    If a person has fewer than `EXACT` vectors, the function compares all of them. Otherwise, it scans the index of
    nearest neighbors until it has found enough vectors of that person (`hnsw.iterative_scan`). For a person's own
    vectors, it reads only the table of vectors, because reading a text takes longer than computing a distance. It uses
    no parallel workers, because starting them takes longer than reading a person's vectors.

    The function runs as the tables' owner and enforces row security itself, like `recall_<table>`.

    Args:
        table: A table of vectors.
        shards_of: The table of the vectors' sources. Required only if some sources belong to a shared stream.
        seen_shards: SQL expression for the shards to search. Required only if a request may not search all shards that
            the caller passes.
    """
    distance = "embedding.vector::halfvec(%1$s) <=> $2::halfvec(%1$s)"
    seen = "embedding.model_id = %2$s AND embedding.vector IS NOT NULL AND ($3 IS NULL OR embedding.said_at >= $3)"
    # Beginning with the shards' sources: they are few, and those of other agents may be many.
    everybodys = f"""
        UNION ALL (
            SELECT source_id, {distance}
            FROM {shards_of} source JOIN {table} embedding ON embedding.source_id = source.id
            WHERE source.stream_id = ANY($5) AND source.user_id IS NULL AND {seen}
        )"""  # noqa: S608 (names of our own tables)
    return RunSQL(
        sql=f"""
            CREATE FUNCTION nearest_{table}(
                person bigint, shards bigint[], model bigint, dimensions integer, query text, since timestamptz,
                most integer
            ) RETURNS TABLE (found bigint, score float8)
            LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS {ROWS}
            SET search_path = pg_catalog, public, pg_temp SET max_parallel_workers_per_gather = 0 AS $$
            DECLARE
                acting bigint := {PERSON};
                are_few boolean := (
                    SELECT count(*) < {EXACT}
                    FROM (SELECT FROM {table} WHERE user_id = acting AND model_id = model LIMIT {EXACT}) own
                );
            BEGIN
                -- Not in the function's head: only a superuser may name there what the extension has not yet defined.
                PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true),
                    set_config('hnsw.ef_search', '100', true);
                RETURN QUERY EXECUTE format($q$
                    SELECT source_id, 1 - distance FROM (
                        (
                            SELECT * FROM (
                                SELECT source_id, {distance} AS distance FROM {table} embedding
                                WHERE embedding.user_id = $1 AND {seen} %3$s
                            ) own ORDER BY distance LIMIT $4
                        ){everybodys if shards_of else ""}
                    ) own ORDER BY distance, source_id DESC LIMIT $4
                $q$, dimensions, model, CASE WHEN are_few THEN 'OFFSET 0' ELSE '' END)
                USING acting, query, since, most, {seen_shards};
            END $$;
            REVOKE ALL ON FUNCTION nearest_{table} FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION nearest_{table} TO {ROLE}, {OPERATOR_ROLE};
        """,  # noqa: S608 (names of our own tables)
    )
