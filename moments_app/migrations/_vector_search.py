"""Search by meaning within one person's vectors: what migrations add for it."""

from django.db.migrations import RunSQL

from sessions_app.limited_operators import OPERATOR_ROLE
from sessions_app.migrations._word_search import ROWS
from sessions_app.row_security import PERSON, ROLE

# Vectors of one person that are read one and all, which is exact and takes some 2 µs each. The index takes longer where
# few of those it meets are the person's: at 1 % of a million five times as long, though it costs less by the planner's
# reckoning.
EXACT = 20_000


def nearest(table: str, *, shards_of: str = "", seen_shards: str = "shards") -> RunSQL:
    """A migration operation: the function `nearest_<table>`, by which requests search vectors.

    It takes the person's primary key, the shards seen, the model's key and width, the query's vector, the earliest
    time, and the most rows wanted; it returns the ids of the sources with their cosine similarity, best first. A
    person's vectors are all read, exactly, up to `EXACT` of them; those of a larger person are searched by the index of
    nearest neighbours, on and on until enough of them are theirs (`hnsw.iterative_scan`). It reads no table but that of
    the vectors: to look up each text would cost more than its distance. Nor by parallel workers: to start them takes
    longer than to read a person's vectors.

    Runs as the tables' owner for the same reasons as `recall_<table>`, and holds the line like it.

    Args:
        table: of vectors.
        shards_of: the table of their sources, where some of these are everybody's, in streams.
        seen_shards: SQL of the shards that are searched, where a request may not name all.
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
