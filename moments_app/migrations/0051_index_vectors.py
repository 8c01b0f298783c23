"""The function by which a worker, which doesn't own the tables, indexes the vectors of a new model."""

from django.db import migrations

TABLES = "'moments_app_factembedding', 'moments_app_momentembedding', 'moments_app_turnembedding'"
# One at a time, and not again what another has built meanwhile.
INDEX_SQL = f"""
CREATE FUNCTION index_vectors(kind text, model bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    width integer := (SELECT known.dimensions FROM moments_app_embeddingmodel known WHERE known.id = model);
    index text := kind || '_nearest_' || model;
BEGIN
    IF width IS NULL OR kind NOT IN ({TABLES}) THEN
        RAISE EXCEPTION 'There are no such vectors.';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(index, 0));
    IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass(index) AND indisvalid) THEN
        RETURN;
    END IF;
    EXECUTE format('DROP INDEX IF EXISTS %I', index);
    EXECUTE format(
        'CREATE INDEX %I ON %I USING hnsw ((vector::halfvec(%s)) halfvec_cosine_ops) WHERE model_id = %s',
        index, kind, width, model
    );
END $$;
REVOKE ALL ON FUNCTION index_vectors(text, bigint) FROM PUBLIC;
"""  # noqa: S608 (names of our own tables)


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0050_items_retracted")]

    operations = [migrations.RunSQL(INDEX_SQL, "DROP FUNCTION index_vectors(text, bigint)")]
