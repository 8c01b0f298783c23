"""Search by meaning within one person's vectors: what migrations add for it."""

from django.db.migrations import RunSQL

from sessions_app.row_security import ACTING, ROLE
from sessions_app.word_search import ROWS


def nearest(table: str, source: str, *, time: str, condition: str = "true", shards: bool = False) -> RunSQL:
    """A migration operation: the function `nearest_<table>`, by which requests search vectors.

    It takes the person's primary key, the shards seen, the model's key and width, the query's vector, the earliest
    time, and the most rows wanted; it returns the ids of the sources with their cosine similarity, best first. Planned
    with its values, each search reads what costs less: all vectors of a small person, exactly, or the index of nearest
    neighbours, on and on until enough of them are the person's (`hnsw.iterative_scan`). Never by parallel workers: to
    start them takes longer than to read a person's vectors.

    Runs as the tables' owner for the same reasons as `recall_<table>`, and holds the line like it.

    Args:
        table: of vectors.
        source: the table that they are of.
        time: column of the source by which the newer is told.
        condition: SQL of the sources that can be found, as `source`.
        shards: the source has rows that are everybody's, in streams.
    """
    distance = "embedding.vector::halfvec(%1$s) <=> $2::halfvec(%1$s)"
    seen = f"embedding.vector IS NOT NULL AND {condition} AND ($3 IS NULL OR source.{time} >= $3)"
    joined = f"FROM {table} embedding JOIN {source} source ON source.id = embedding.source_id"
    # Beginning with the shard's rows: they are few, and other agents' may be many.
    everybodys = f"""
        UNION ALL (
            SELECT source.id, {distance} {joined}
            WHERE source.stream_id = ANY($5) AND source.user_id IS NULL AND embedding.model_id = %2$s AND {seen}
        )"""
    return RunSQL(
        sql=f"""
            CREATE FUNCTION nearest_{table}(
                person bigint, shards bigint[], model bigint, dimensions integer, query text, since timestamptz,
                most integer
            ) RETURNS TABLE (found bigint, score float8)
            LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS {ROWS}
            SET search_path FROM CURRENT SET max_parallel_workers_per_gather = 0 AS $$
            DECLARE
                acting bigint := CASE WHEN current_setting('role') = '{ROLE}' THEN {ACTING} ELSE person END;
            BEGIN
                -- Not in the function's head: only a superuser may name there what the extension has not yet defined.
                PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true),
                    set_config('hnsw.ef_search', '100', true);
                RETURN QUERY EXECUTE format($q$
                    SELECT id, 1 - distance FROM (
                        (
                            SELECT source.id, {distance} AS distance {joined}
                            WHERE embedding.user_id = $1 AND embedding.model_id = %2$s AND {seen}
                            ORDER BY distance LIMIT $4
                        ){everybodys if shards else ""}
                    ) own ORDER BY distance, id DESC LIMIT $4
                $q$, dimensions, model) USING acting, query, since, most, shards;
            END $$;
            REVOKE ALL ON FUNCTION nearest_{table} FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION nearest_{table} TO {ROLE};
        """,  # noqa: S608 (names of our own tables)
        reverse_sql=f"DROP FUNCTION nearest_{table}",
    )
