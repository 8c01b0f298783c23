"""Search stored items by meaning."""

import django.db.models.deletion
import pgvector.django.halfvec
from django.db import migrations, models

from moments_app.migrations._vector_search import EXACT
from sessions_app.limited_operators import let_operators, seen
from sessions_app.row_security import ACTING_APPLICATION, IS_REQUEST, PERSON, ROLE

TABLE, ITEMS = "moments_app_itemembedding", "moments_app_storeditem"
ITS_ITEM = seen(TABLE, ITEMS, "source_id")

# A request sees the vectors of the items that it sees.
PROTECT = migrations.RunSQL(
    f"""
        ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY;
        CREATE POLICY acting_user ON {TABLE} TO {ROLE} USING ({ITS_ITEM});
        GRANT SELECT, INSERT, UPDATE, DELETE ON {TABLE} TO {ROLE};
    """,
    f"""
        REVOKE ALL ON {TABLE} FROM {ROLE};
        DROP POLICY acting_user ON {TABLE};
        ALTER TABLE {TABLE} DISABLE ROW LEVEL SECURITY;
    """,
)
FORGET = migrations.RunSQL(
    f"""
        CREATE FUNCTION memory_item_reworded() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN DELETE FROM {TABLE} WHERE source_id = NEW.id; RETURN NULL; END $$;
        CREATE TRIGGER reworded AFTER UPDATE OF text ON {ITEMS} FOR EACH ROW
            WHEN (NEW.text IS DISTINCT FROM OLD.text) EXECUTE FUNCTION memory_item_reworded();
    """,  # noqa: S608 (names of our own)
    f"DROP TRIGGER reworded ON {ITEMS}; DROP FUNCTION memory_item_reworded()",
)
# Up to `EXACT` items, it reads the vectors of all items in the namespaces, which is exact. Of more items, it searches
# the index of nearest neighbors until enough of them are in the namespaces. In a request, the caller can't choose whose
# items are searched.
OWN = "item.application_id = $1 AND item.user_id %3$s AND item.namespace >= $2 AND ($3 IS NULL OR item.namespace < $3)"
NEAREST = migrations.RunSQL(
    f"""
        CREATE FUNCTION nearest_{TABLE}(
            person bigint, application bigint, first text, beyond text, conditions jsonb, model bigint,
            dimensions integer, query text, most integer
        ) RETURNS TABLE (found bigint, score float8)
        LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
        SET search_path = pg_catalog, public, pg_temp
        SET max_parallel_workers_per_gather = 0 SET enable_seqscan = off AS $$
        DECLARE
            acting bigint := {PERSON};
            owner bigint := CASE WHEN {IS_REQUEST} THEN {ACTING_APPLICATION} ELSE application END;
            whose text := CASE WHEN acting IS NULL THEN 'IS NULL' ELSE format('= %s', acting) END;
            are_few boolean;
        BEGIN
            -- Not in the function's head: only a superuser may name there what the extension has not yet defined.
            PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true),
                set_config('hnsw.ef_search', '100', true);
            EXECUTE format(
                'SELECT count(*) < {EXACT} FROM (SELECT FROM {ITEMS} item WHERE {OWN} LIMIT {EXACT}) own',
                dimensions, model, whose
            ) INTO are_few USING owner, first, beyond;
            RETURN QUERY EXECUTE format($q$
                SELECT id, 1 - distance FROM (
                    SELECT * FROM (
                        SELECT item.id, embedding.vector::halfvec(%1$s) <=> $4::halfvec(%1$s) AS distance
                        FROM {ITEMS} item JOIN {TABLE} embedding ON embedding.source_id = item.id
                        WHERE {OWN} AND (item.expires_at IS NULL OR item.expires_at > statement_timestamp())
                        AND ($5 IS NULL OR memory_item_fits(item.value, $5))
                        AND embedding.model_id = %2$s AND embedding.vector IS NOT NULL %4$s
                    ) own ORDER BY distance LIMIT $6
                ) own ORDER BY distance, id DESC
            $q$, dimensions, model, whose, CASE WHEN are_few THEN 'OFFSET 0' ELSE '' END)
            USING owner, first, beyond, query, conditions, most;
        END $$;
        REVOKE ALL ON FUNCTION nearest_{TABLE} FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION nearest_{TABLE} TO {ROLE};
    """,  # noqa: S608 (names of our own)
    f"DROP FUNCTION nearest_{TABLE}",
)
# The embedded server then embeds the items that are stored already.
UNFILLED = migrations.RunSQL(
    f"""
        UPDATE moments_app_embeddingmodel SET is_filled = false
        WHERE EXISTS (SELECT FROM {ITEMS} WHERE user_id IS NOT NULL AND text <> '')
    """,  # noqa: S608 (names of our own)
    migrations.RunSQL.noop,
)


def _index_vectors(*kinds: str) -> str:
    """Return the function that builds the index of nearest neighbors for a kind of vectors."""
    known = ", ".join(f"'moments_app_{kind}embedding'" for kind in kinds)
    return f"""
        CREATE OR REPLACE FUNCTION index_vectors(kind text, model bigint) RETURNS void
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
        DECLARE
            width integer := (SELECT known.dimensions FROM moments_app_embeddingmodel known WHERE known.id = model);
            index text := kind || '_nearest_' || model;
        BEGIN
            IF width IS NULL OR kind NOT IN ({known}) THEN
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
    """  # noqa: S608 (names of our own)


INDEXES = migrations.RunSQL(
    [
        _index_vectors("fact", "moment", "turn", "item"),
        f"SELECT index_vectors('{TABLE}', id) FROM moments_app_embeddingmodel",  # noqa: S608 (names of our own)
    ],
    _index_vectors("fact", "moment", "turn"),
)


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0132_index_of_expiring_items"),
        ("sessions_app", "0060_help_texts"),
    ]

    operations = [
        migrations.CreateModel(
            name="ItemEmbedding",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "said_at",
                    models.DateTimeField(help_text="Time of the embedded text, copied here to speed up searches."),
                ),
                (
                    "vector",
                    pgvector.django.halfvec.HalfVectorField(
                        help_text="Vector of the text. Blank if the endpoint rejected the text.", null=True
                    ),
                ),
                (
                    "refusal",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="The endpoint's latest error for the text. Blank if the endpoint accepted the text.",
                        max_length=255,
                    ),
                ),
                (
                    "refusals",
                    models.PositiveSmallIntegerField(
                        db_default=0,
                        default=0,
                        help_text="Number of times that the endpoint has rejected the text.",
                    ),
                ),
                (
                    "ask_again_at",
                    models.DateTimeField(
                        help_text="When a rejected text will be sent again. If blank, the text is sent with the next "
                        "batch.",
                        null=True,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "model",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="moments_app.embeddingmodel",
                    ),
                ),
                (
                    "source",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="embeddings",
                        to="moments_app.storeditem",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "abstract": False,
                "indexes": [
                    models.Index(fields=["user", "model"], name="itemembedding_user"),
                    models.Index(
                        condition=models.Q(("vector", None)),
                        fields=["model", "ask_again_at"],
                        name="itemembedding_refused",
                    ),
                ],
                "constraints": [models.UniqueConstraint(fields=("source", "model"), name="itemembedding_unique")],
            },
        ),
        PROTECT,
        let_operators(TABLE, ITS_ITEM),
        FORGET,
        NEAREST,
        UNFILLED,
        INDEXES,
    ]
