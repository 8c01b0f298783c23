ALTER TABLE moments_app_releasesource ENABLE ROW LEVEL SECURITY;
            CREATE POLICY acting_user ON moments_app_releasesource TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            GRANT SELECT, UPDATE (atom_id) ON moments_app_releasesource TO memory_request;

ALTER TABLE moments_app_release ENABLE ROW LEVEL SECURITY;
            CREATE POLICY acting_user ON moments_app_release TO memory_request USING (false);
            GRANT SELECT, UPDATE (atom_id) ON moments_app_release TO memory_request;

ALTER POLICY acting_user ON moments_app_job USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            CREATE POLICY everybodys_read ON moments_app_job FOR SELECT TO memory_request USING (user_id IS NULL AND true);
            CREATE POLICY everybodys_changed ON moments_app_job TO memory_request USING (user_id IS NULL AND current_setting('memory.everybodys', true) = 'on');

ALTER POLICY acting_user ON moments_app_memorystream USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            CREATE POLICY everybodys_read ON moments_app_memorystream FOR SELECT TO memory_request USING (user_id IS NULL AND true);
            CREATE POLICY everybodys_changed ON moments_app_memorystream TO memory_request USING (user_id IS NULL AND current_setting('memory.everybodys', true) = 'on');

ALTER POLICY acting_user ON moments_app_factembedding USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            CREATE POLICY everybodys_read ON moments_app_factembedding FOR SELECT TO memory_request USING (user_id IS NULL AND true);
            CREATE POLICY everybodys_changed ON moments_app_factembedding TO memory_request USING (user_id IS NULL AND current_setting('memory.everybodys', true) = 'on');

ALTER POLICY acting_user ON moments_app_memoryatom USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            CREATE POLICY everybodys_read ON moments_app_memoryatom FOR SELECT TO memory_request USING (user_id IS NULL AND state <> 'evicted');
            CREATE POLICY everybodys_changed ON moments_app_memoryatom TO memory_request USING (user_id IS NULL AND current_setting('memory.everybodys', true) = 'on');

ALTER POLICY acting_user ON moments_app_streamversion USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            CREATE POLICY everybodys_read ON moments_app_streamversion FOR SELECT TO memory_request USING (user_id IS NULL AND undone_at IS NULL);
            CREATE POLICY everybodys_changed ON moments_app_streamversion TO memory_request USING (user_id IS NULL AND current_setting('memory.everybodys', true) = 'on');

DROP POLICY everybodys_changed ON moments_app_memorystream;
            DROP POLICY everybodys_read ON moments_app_memorystream;
            ALTER POLICY acting_user ON moments_app_memorystream USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint OR user_id IS NULL);
            ALTER POLICY acting_user ON moments_app_memorystream USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            CREATE POLICY everybodys_read ON moments_app_memorystream FOR SELECT TO memory_request USING (user_id IS NULL AND application_id = NULLIF(current_setting('memory.application', true), '')::bigint AND (true OR current_setting('memory.everybodys', true) = 'on'));
            
            CREATE POLICY everybodys_added ON moments_app_memorystream FOR INSERT TO memory_request WITH CHECK (user_id IS NULL AND application_id = NULLIF(current_setting('memory.application', true), '')::bigint AND current_setting('memory.everybodys', true) = 'on');
            CREATE POLICY everybodys_changed ON moments_app_memorystream FOR UPDATE TO memory_request USING (user_id IS NULL AND application_id = NULLIF(current_setting('memory.application', true), '')::bigint AND current_setting('memory.everybodys', true) = 'on');
            CREATE POLICY everybodys_removed ON moments_app_memorystream FOR DELETE TO memory_request USING (user_id IS NULL AND application_id = NULLIF(current_setting('memory.application', true), '')::bigint AND current_setting('memory.everybodys', true) = 'on');

DROP POLICY everybodys_changed ON moments_app_memoryatom;
            DROP POLICY everybodys_read ON moments_app_memoryatom;
            ALTER POLICY acting_user ON moments_app_memoryatom USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint OR user_id IS NULL);
            ALTER POLICY acting_user ON moments_app_memoryatom USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            CREATE POLICY everybodys_read ON moments_app_memoryatom FOR SELECT TO memory_request USING (user_id IS NULL AND EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_memoryatom.stream_id) AND (state <> 'evicted' OR current_setting('memory.everybodys', true) = 'on'));
            
            CREATE POLICY everybodys_added ON moments_app_memoryatom FOR INSERT TO memory_request WITH CHECK (user_id IS NULL AND EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_memoryatom.stream_id) AND current_setting('memory.everybodys', true) = 'on');
            CREATE POLICY everybodys_changed ON moments_app_memoryatom FOR UPDATE TO memory_request USING (user_id IS NULL AND EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_memoryatom.stream_id) AND current_setting('memory.everybodys', true) = 'on');
            CREATE POLICY everybodys_removed ON moments_app_memoryatom FOR DELETE TO memory_request USING (user_id IS NULL AND EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_memoryatom.stream_id) AND current_setting('memory.everybodys', true) = 'on');

DROP POLICY everybodys_changed ON moments_app_streamversion;
            DROP POLICY everybodys_read ON moments_app_streamversion;
            ALTER POLICY acting_user ON moments_app_streamversion USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint OR user_id IS NULL);
            ALTER POLICY acting_user ON moments_app_streamversion USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            CREATE POLICY everybodys_read ON moments_app_streamversion FOR SELECT TO memory_request USING (user_id IS NULL AND EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_streamversion.stream_id) AND (undone_at IS NULL OR current_setting('memory.everybodys', true) = 'on'));
            
            CREATE POLICY everybodys_added ON moments_app_streamversion FOR INSERT TO memory_request WITH CHECK (user_id IS NULL AND EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_streamversion.stream_id) AND current_setting('memory.everybodys', true) = 'on');
            CREATE POLICY everybodys_changed ON moments_app_streamversion FOR UPDATE TO memory_request USING (user_id IS NULL AND EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_streamversion.stream_id) AND current_setting('memory.everybodys', true) = 'on');
            CREATE POLICY everybodys_removed ON moments_app_streamversion FOR DELETE TO memory_request USING (user_id IS NULL AND EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_streamversion.stream_id) AND current_setting('memory.everybodys', true) = 'on');

DROP POLICY everybodys_changed ON moments_app_job;
            DROP POLICY everybodys_read ON moments_app_job;
            ALTER POLICY acting_user ON moments_app_job USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint OR user_id IS NULL);
            ALTER POLICY acting_user ON moments_app_job USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            CREATE POLICY everybodys_read ON moments_app_job FOR SELECT TO memory_request USING (user_id IS NULL AND EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_job.stream_id) AND (true OR current_setting('memory.everybodys', true) = 'on'));
            
            CREATE POLICY everybodys_added ON moments_app_job FOR INSERT TO memory_request WITH CHECK (user_id IS NULL AND EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_job.stream_id) AND current_setting('memory.everybodys', true) = 'on');
            CREATE POLICY everybodys_changed ON moments_app_job FOR UPDATE TO memory_request USING (user_id IS NULL AND EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_job.stream_id) AND current_setting('memory.everybodys', true) = 'on');
            CREATE POLICY everybodys_removed ON moments_app_job FOR DELETE TO memory_request USING (user_id IS NULL AND EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_job.stream_id) AND current_setting('memory.everybodys', true) = 'on');

DROP POLICY everybodys_changed ON moments_app_factembedding;
            DROP POLICY everybodys_read ON moments_app_factembedding;
            ALTER POLICY acting_user ON moments_app_factembedding USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint OR user_id IS NULL);
            ALTER POLICY acting_user ON moments_app_factembedding USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            CREATE POLICY everybodys_read ON moments_app_factembedding FOR SELECT TO memory_request USING (user_id IS NULL AND EXISTS (SELECT FROM moments_app_memoryatom seen WHERE seen.id = moments_app_factembedding.source_id) AND (true OR current_setting('memory.everybodys', true) = 'on'));
            
            CREATE POLICY everybodys_added ON moments_app_factembedding FOR INSERT TO memory_request WITH CHECK (user_id IS NULL AND EXISTS (SELECT FROM moments_app_memoryatom seen WHERE seen.id = moments_app_factembedding.source_id) AND current_setting('memory.everybodys', true) = 'on');
            CREATE POLICY everybodys_changed ON moments_app_factembedding FOR UPDATE TO memory_request USING (user_id IS NULL AND EXISTS (SELECT FROM moments_app_memoryatom seen WHERE seen.id = moments_app_factembedding.source_id) AND current_setting('memory.everybodys', true) = 'on');
            CREATE POLICY everybodys_removed ON moments_app_factembedding FOR DELETE TO memory_request USING (user_id IS NULL AND EXISTS (SELECT FROM moments_app_memoryatom seen WHERE seen.id = moments_app_factembedding.source_id) AND current_setting('memory.everybodys', true) = 'on');

ALTER POLICY acting_user ON moments_app_vocabulary USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            ALTER POLICY acting_user ON moments_app_vocabulary USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            CREATE POLICY everybodys_read ON moments_app_vocabulary FOR SELECT TO memory_request USING (user_id IS NULL AND EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_vocabulary.stream_id) AND true);

ALTER POLICY acting_user ON moments_app_word USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            ALTER POLICY acting_user ON moments_app_word USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            CREATE POLICY everybodys_read ON moments_app_word FOR SELECT TO memory_request USING (user_id IS NULL AND EXISTS (SELECT FROM moments_app_vocabulary seen WHERE seen.id = moments_app_word.vocabulary_id) AND true);

ALTER TABLE moments_app_promptresource ENABLE ROW LEVEL SECURITY;
        CREATE POLICY acting_user ON moments_app_promptresource TO memory_request USING (application_id IS NULL OR application_id = NULLIF(current_setting('memory.application', true), '')::bigint);

ALTER TABLE moments_app_promptversion ENABLE ROW LEVEL SECURITY;
        CREATE POLICY acting_user ON moments_app_promptversion TO memory_request USING (EXISTS (SELECT FROM moments_app_promptresource seen WHERE seen.id = moments_app_promptversion.resource_id));

CREATE OR REPLACE FUNCTION recall_moments_app_memoryatom(
                person bigint, scopes text[], rare text[], joint text[], with_newest boolean, queries text[],
                weights float8[], average float8, since timestamptz, most integer
            ) RETURNS TABLE (found bigint, score float8)
            LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
            SET search_path FROM CURRENT SET max_parallel_workers_per_gather = 0 AS $$
            DECLARE
                is_request boolean := current_setting('role') = 'memory_request';
                acting bigint := CASE WHEN is_request THEN NULLIF(current_setting('memory.user_pk', true), '')::bigint ELSE person END;
                own text := 'u' || acting;
                seen text[] := ARRAY(SELECT s FROM unnest(scopes) s WHERE NOT is_request OR s = own OR s LIKE 's%' AND substr(s, 2)::bigint IN (SELECT id FROM moments_app_memorystream WHERE stream_type = 'agent' AND application_id = NULLIF(current_setting('memory.application', true), '')::bigint));
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
                candidates text := $q$SELECT id, search_vector, formed_at FROM moments_app_memoryatom WHERE public.memory_words(COALESCE('u' || user_id, 's' || stream_id), search_vector) && $1 AND state <> 'evicted' AND ($5 IS NULL OR formed_at >= $5) LIMIT 10000$q$;
            BEGIN
                IF formula IS NULL THEN RETURN; END IF;
                IF average IS NULL THEN
                    RETURN QUERY EXECUTE format($q$
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
$q$, candidates,
                        $q$SELECT FROM moments_app_memoryatom WHERE user_id = $3 AND state <> 'evicted' LIMIT 10000$q$,
                        'formed_at'
                    ) USING any_rare, queries, acting, weights, since, most;
                    RETURN;
                END IF;
                IF with_newest THEN
                    -- An array and no subquery: the planner would expect thousands, and read the table for them.
                    candidates := $q$SELECT id, search_vector, formed_at FROM moments_app_memoryatom WHERE id = ANY (ARRAY(
                        (SELECT id FROM moments_app_memoryatom WHERE public.memory_words(COALESCE('u' || user_id, 's' || stream_id), search_vector) && $1 AND state <> 'evicted' AND ($5 IS NULL OR formed_at >= $5) LIMIT 10000)
                        UNION
                        (SELECT id FROM moments_app_memoryatom WHERE $2 <> '{}' AND public.memory_words(COALESCE('u' || user_id, 's' || stream_id), search_vector) @> $2 AND state <> 'evicted' AND ($5 IS NULL OR formed_at >= $5) LIMIT 10000)
                        UNION
                        (SELECT id FROM moments_app_memoryatom WHERE user_id = $3 AND search_vector @@ $4 AND state <> 'evicted' AND ($5 IS NULL OR formed_at >= $5)
                         ORDER BY formed_at DESC, id DESC LIMIT 500)
                    ))$q$;
                END IF;
                RETURN QUERY EXECUTE format(
                    'SELECT id, (%s) * 16.449 * 1.6 / (1 + 0.6 * (0.7 + 0.3 * length(search_vector) / $6)) AS score
                     FROM (%s) candidate ORDER BY score DESC, formed_at DESC, id DESC LIMIT $7', formula, candidates
                ) USING any_rare, all_joint, acting, array_to_string(queries, ' | ')::tsquery, since,
                    greatest(average, 1.0), most;
            END $$;
            REVOKE ALL ON FUNCTION recall_moments_app_memoryatom FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION recall_moments_app_memoryatom TO memory_request;

CREATE OR REPLACE FUNCTION nearest_moments_app_factembedding(
                person bigint, shards bigint[], model bigint, dimensions integer, query text, since timestamptz,
                most integer
            ) RETURNS TABLE (found bigint, score float8)
            LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
            SET search_path FROM CURRENT SET max_parallel_workers_per_gather = 0 AS $$
            DECLARE
                acting bigint := CASE WHEN current_setting('role') = 'memory_request' THEN NULLIF(current_setting('memory.user_pk', true), '')::bigint ELSE person END;
                are_few boolean := (
                    SELECT count(*) < 20000
                    FROM (SELECT FROM moments_app_factembedding WHERE user_id = acting AND model_id = model LIMIT 20000) own
                );
            BEGIN
                -- Not in the function's head: only a superuser may name there what the extension has not yet defined.
                PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true),
                    set_config('hnsw.ef_search', '100', true);
                RETURN QUERY EXECUTE format($q$
                    SELECT source_id, 1 - distance FROM (
                        (
                            SELECT * FROM (
                                SELECT source_id, embedding.vector::halfvec(%1$s) <=> $2::halfvec(%1$s) AS distance FROM moments_app_factembedding embedding
                                WHERE embedding.user_id = $1 AND embedding.model_id = %2$s AND embedding.vector IS NOT NULL AND ($3 IS NULL OR embedding.said_at >= $3) %3$s
                            ) own ORDER BY distance LIMIT $4
                        )
        UNION ALL (
            SELECT source_id, embedding.vector::halfvec(%1$s) <=> $2::halfvec(%1$s)
            FROM moments_app_memoryatom source JOIN moments_app_factembedding embedding ON embedding.source_id = source.id
            WHERE source.stream_id = ANY($5) AND source.user_id IS NULL AND embedding.model_id = %2$s AND embedding.vector IS NOT NULL AND ($3 IS NULL OR embedding.said_at >= $3)
        )
                    ) own ORDER BY distance, source_id DESC LIMIT $4
                $q$, dimensions, model, CASE WHEN are_few THEN 'OFFSET 0' ELSE '' END)
                USING acting, query, since, most, CASE WHEN current_setting('role') = 'memory_request' THEN ARRAY(SELECT id FROM moments_app_memorystream WHERE stream_type = 'agent' AND application_id = NULLIF(current_setting('memory.application', true), '')::bigint AND id = ANY(shards)) ELSE shards END;
            END $$;
            REVOKE ALL ON FUNCTION nearest_moments_app_factembedding FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION nearest_moments_app_factembedding TO memory_request;

ALTER TABLE moments_app_contextreceipt ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_contextreceipt TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_contextreceipt.user_id));

ALTER TABLE moments_app_entity ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_entity TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_entity.user_id));

ALTER TABLE moments_app_entitylink ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_entitylink TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_entitylink.user_id));

ALTER TABLE moments_app_moment ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_moment TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_moment.user_id));

ALTER TABLE moments_app_momentembedding ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_momentembedding TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_momentembedding.user_id));

ALTER TABLE moments_app_owntext ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_owntext TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_owntext.user_id));

ALTER TABLE moments_app_releasesource ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_releasesource TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_releasesource.user_id));

ALTER TABLE moments_app_retracteditem ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_retracteditem TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_retracteditem.user_id));

ALTER TABLE moments_app_retraction ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_retraction TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_retraction.user_id));

ALTER TABLE moments_app_servedline ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_servedline TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_servedline.user_id));

ALTER TABLE moments_app_summary ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_summary TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_summary.user_id));

ALTER TABLE moments_app_turnembedding ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_turnembedding TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_turnembedding.user_id));

ALTER TABLE moments_app_memorystream ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_memorystream TO memory_operator USING (CASE WHEN user_id IS NULL THEN application_id = ANY((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]) ELSE EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_memorystream.user_id) END);

ALTER TABLE moments_app_memoryatom ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_memoryatom TO memory_operator USING (CASE WHEN user_id IS NULL THEN EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_memoryatom.stream_id) ELSE EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_memoryatom.user_id) END);

ALTER TABLE moments_app_job ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_job TO memory_operator USING (CASE WHEN user_id IS NULL THEN EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_job.stream_id) ELSE EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_job.user_id) END);

ALTER TABLE moments_app_streamversion ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_streamversion TO memory_operator USING (CASE WHEN user_id IS NULL THEN EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_streamversion.stream_id) ELSE EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_streamversion.user_id) END);

ALTER TABLE moments_app_vocabulary ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_vocabulary TO memory_operator USING (CASE WHEN user_id IS NULL THEN EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_vocabulary.stream_id) ELSE EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_vocabulary.user_id) END);

ALTER TABLE moments_app_factembedding ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_factembedding TO memory_operator USING (CASE WHEN user_id IS NULL THEN EXISTS (SELECT FROM moments_app_memoryatom seen WHERE seen.id = moments_app_factembedding.source_id) ELSE EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_factembedding.user_id) END);

ALTER TABLE moments_app_word ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_word TO memory_operator USING (CASE WHEN user_id IS NULL THEN EXISTS (SELECT FROM moments_app_vocabulary seen WHERE seen.id = moments_app_word.vocabulary_id) ELSE EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_word.user_id) END);

ALTER TABLE moments_app_release ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_release TO memory_operator USING (EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_release.stream_id));

ALTER TABLE moments_app_enginecall ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_enginecall TO memory_operator USING (EXISTS (SELECT FROM moments_app_job seen WHERE seen.id = moments_app_enginecall.job_id));
            
            CREATE POLICY acting_user ON moments_app_enginecall TO memory_request USING (true);

ALTER TABLE moments_app_promptresource ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_promptresource TO memory_operator USING (application_id = ANY((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]));
            CREATE POLICY operators_read ON moments_app_promptresource FOR SELECT TO memory_operator USING (application_id IS NULL);

ALTER TABLE moments_app_promptversion ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_promptversion TO memory_operator USING (EXISTS (SELECT FROM moments_app_promptresource own WHERE own.id = moments_app_promptversion.resource_id AND own.application_id = ANY((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[])));
            CREATE POLICY operators_read ON moments_app_promptversion FOR SELECT TO memory_operator USING (EXISTS (SELECT FROM moments_app_promptresource seen WHERE seen.id = moments_app_promptversion.resource_id));

ALTER TABLE django_q_ormq ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON django_q_ormq TO memory_operator USING (false);
            
            CREATE POLICY acting_user ON django_q_ormq TO memory_request USING (true);

ALTER TABLE django_q_task ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON django_q_task TO memory_operator USING (false);

DO $$ DECLARE function regprocedure; BEGIN
            FOR function IN SELECT oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef LOOP
                EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO memory_operator', function);
            END LOOP;
        END $$;

CREATE FUNCTION index_vectors(kind text, model bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    width integer := (SELECT known.dimensions FROM moments_app_embeddingmodel known WHERE known.id = model);
    index text := kind || '_nearest_' || model;
BEGIN
    IF width IS NULL OR kind NOT IN ('moments_app_factembedding', 'moments_app_momentembedding', 'moments_app_turnembedding') THEN
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

ALTER TABLE moments_app_contradiction ENABLE ROW LEVEL SECURITY;
            CREATE POLICY acting_user ON moments_app_contradiction TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_contradiction TO memory_request;

ALTER TABLE moments_app_correction ENABLE ROW LEVEL SECURITY;
            CREATE POLICY acting_user ON moments_app_correction TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_correction TO memory_request;

ALTER TABLE moments_app_correctedturn ENABLE ROW LEVEL SECURITY;
            CREATE POLICY acting_user ON moments_app_correctedturn TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_correctedturn TO memory_request;

ALTER TABLE moments_app_contradiction ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_contradiction TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_contradiction.user_id));

ALTER TABLE moments_app_correction ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_correction TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_correction.user_id));

ALTER TABLE moments_app_correctedturn ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_correctedturn TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_correctedturn.user_id));

ALTER TABLE moments_app_profileline ENABLE ROW LEVEL SECURITY;
            CREATE POLICY acting_user ON moments_app_profileline TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_profileline TO memory_request;

ALTER TABLE moments_app_profileline ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_profileline TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_profileline.user_id));

ALTER TABLE moments_app_probe ENABLE ROW LEVEL SECURITY;
            CREATE POLICY acting_user ON moments_app_probe TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_probe TO memory_request;

ALTER TABLE moments_app_proberesult ENABLE ROW LEVEL SECURITY;
            CREATE POLICY acting_user ON moments_app_proberesult TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_proberesult TO memory_request;

ALTER TABLE moments_app_probe ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_probe TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_probe.user_id));

ALTER TABLE moments_app_proberesult ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_proberesult TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_proberesult.user_id));

DO $do$ BEGIN EXECUTE replace(pg_get_functiondef('recall_moments_app_memoryatom'::regproc), 'max(cardinality(word.positions))', 'COALESCE(max(cardinality(word.positions)), 1)'); END $do$;

DO $do$ BEGIN EXECUTE replace(pg_get_functiondef('recall_moments_app_moment'::regproc), 'max(cardinality(word.positions))', 'COALESCE(max(cardinality(word.positions)), 1)'); END $do$;

ALTER TABLE moments_app_keptexchange ENABLE ROW LEVEL SECURITY;
            CREATE POLICY acting_user ON moments_app_keptexchange TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_keptexchange TO memory_request;

ALTER TABLE moments_app_keptexchange ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_keptexchange TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_keptexchange.user_id));

ALTER TABLE moments_app_failuregroup ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_failuregroup TO memory_operator USING (application_id = ANY((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]));

ALTER TABLE moments_app_failurehour ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_failurehour TO memory_operator USING (EXISTS (SELECT FROM moments_app_failuregroup seen WHERE seen.id = moments_app_failurehour.failure_id));

ALTER POLICY operators ON moments_app_retraction USING (CASE WHEN user_id IS NULL THEN EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_retraction.stream_id) ELSE EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_retraction.user_id) END);

ALTER POLICY operators ON moments_app_retracteditem USING (CASE WHEN user_id IS NULL THEN EXISTS (SELECT FROM moments_app_retraction seen WHERE seen.id = moments_app_retracteditem.retraction_id) ELSE EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_retracteditem.user_id) END);

ALTER TABLE moments_app_prompttrial ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_prompttrial TO memory_operator USING (EXISTS (SELECT FROM moments_app_promptversion seen WHERE seen.id = moments_app_prompttrial.version_id));

ALTER TABLE moments_app_trialside ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_trialside TO memory_operator USING (EXISTS (SELECT FROM moments_app_prompttrial seen WHERE seen.id = moments_app_trialside.trial_id));

ALTER TABLE moments_app_webhookendpoint ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_webhookendpoint TO memory_operator USING (application_id = ANY((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]));

ALTER TABLE moments_app_webhookdelivery ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON moments_app_webhookdelivery TO memory_operator USING (EXISTS (SELECT FROM moments_app_webhookendpoint seen WHERE seen.id = moments_app_webhookdelivery.endpoint_id));

DO $do$
            DECLARE
                made text := pg_get_functiondef('recall_moments_app_memoryatom'::regproc);
                changes text[] := ARRAY[
                    ['recall_moments_app_memoryatom(', 'recall_moments_app_memoryatom_then('],
                    ['most integer)', 'most integer, until timestamp with time zone)'],
                    ['BEGIN', 'BEGIN PERFORM set_config(''memory.until'', until::text, true);'],
                    [$s$($5 IS NULL OR formed_at >= $5)$s$, $s$($5 IS NULL OR formed_at >= $5) AND formed_at <= current_setting('memory.until')::timestamptz AND COALESCE(corrected_at <= current_setting('memory.until')::timestamptz, true) AND COALESCE(valid_from <= current_setting('memory.until')::timestamptz, true) AND NOT COALESCE(valid_until <= current_setting('memory.until')::timestamptz AND ended_at <= current_setting('memory.until')::timestamptz, false)$s$]
                ];
                part text[];
            BEGIN
                FOREACH part SLICE 1 IN ARRAY changes LOOP
                    IF strpos(made, part[1]) = 0 THEN RAISE EXCEPTION '% has no %', 'recall_moments_app_memoryatom', part[1]; END IF;
                    made := replace(made, part[1], part[2]);
                END LOOP;
                EXECUTE made;
            END $do$;
            REVOKE ALL ON FUNCTION recall_moments_app_memoryatom_then FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION recall_moments_app_memoryatom_then TO memory_request;

DO $do$
            DECLARE
                made text := pg_get_functiondef('recall_moments_app_moment'::regproc);
                changes text[] := ARRAY[
                    ['recall_moments_app_moment(', 'recall_moments_app_moment_then('],
                    ['most integer)', 'most integer, until timestamp with time zone)'],
                    ['BEGIN', 'BEGIN PERFORM set_config(''memory.until'', until::text, true);'],
                    [$s$($5 IS NULL OR ends_at >= $5)$s$, $s$($5 IS NULL OR ends_at >= $5) AND ends_at <= current_setting('memory.until')::timestamptz$s$]
                ];
                part text[];
            BEGIN
                FOREACH part SLICE 1 IN ARRAY changes LOOP
                    IF strpos(made, part[1]) = 0 THEN RAISE EXCEPTION '% has no %', 'recall_moments_app_moment', part[1]; END IF;
                    made := replace(made, part[1], part[2]);
                END LOOP;
                EXECUTE made;
            END $do$;
            REVOKE ALL ON FUNCTION recall_moments_app_moment_then FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION recall_moments_app_moment_then TO memory_request;

DO $do$
            DECLARE
                made text := pg_get_functiondef('recall_sessions_app_message'::regproc);
                changes text[] := ARRAY[
                    ['recall_sessions_app_message(', 'recall_sessions_app_message_then('],
                    ['most integer)', 'most integer, until timestamp with time zone)'],
                    ['BEGIN', 'BEGIN PERFORM set_config(''memory.until'', until::text, true);'],
                    [$s$($5 IS NULL OR created_at >= $5)$s$, $s$($5 IS NULL OR created_at >= $5) AND created_at <= current_setting('memory.until')::timestamptz$s$]
                ];
                part text[];
            BEGIN
                FOREACH part SLICE 1 IN ARRAY changes LOOP
                    IF strpos(made, part[1]) = 0 THEN RAISE EXCEPTION '% has no %', 'recall_sessions_app_message', part[1]; END IF;
                    made := replace(made, part[1], part[2]);
                END LOOP;
                EXECUTE made;
            END $do$;
            REVOKE ALL ON FUNCTION recall_sessions_app_message_then FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION recall_sessions_app_message_then TO memory_request;

DO $do$
            DECLARE
                made text := pg_get_functiondef('nearest_moments_app_factembedding'::regproc);
                changes text[] := ARRAY[
                    ['nearest_moments_app_factembedding(', 'nearest_moments_app_factembedding_then('],
                    ['most integer)', 'most integer, until timestamp with time zone)'],
                    ['BEGIN', 'BEGIN PERFORM set_config(''memory.until'', until::text, true);'],
                    [$s$($3 IS NULL OR embedding.said_at >= $3)$s$, $s$($3 IS NULL OR embedding.said_at >= $3) AND embedding.said_at <= current_setting('memory.until')::timestamptz AND EXISTS (SELECT FROM moments_app_memoryatom fact WHERE fact.id = embedding.source_id AND fact.formed_at <= current_setting('memory.until')::timestamptz AND COALESCE(fact.corrected_at <= current_setting('memory.until')::timestamptz, true) AND COALESCE(fact.valid_from <= current_setting('memory.until')::timestamptz, true) AND NOT COALESCE(fact.valid_until <= current_setting('memory.until')::timestamptz AND fact.ended_at <= current_setting('memory.until')::timestamptz, false))$s$]
                ];
                part text[];
            BEGIN
                FOREACH part SLICE 1 IN ARRAY changes LOOP
                    IF strpos(made, part[1]) = 0 THEN RAISE EXCEPTION '% has no %', 'nearest_moments_app_factembedding', part[1]; END IF;
                    made := replace(made, part[1], part[2]);
                END LOOP;
                EXECUTE made;
            END $do$;
            REVOKE ALL ON FUNCTION nearest_moments_app_factembedding_then FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION nearest_moments_app_factembedding_then TO memory_request;

DO $do$
            DECLARE
                made text := pg_get_functiondef('nearest_moments_app_momentembedding'::regproc);
                changes text[] := ARRAY[
                    ['nearest_moments_app_momentembedding(', 'nearest_moments_app_momentembedding_then('],
                    ['most integer)', 'most integer, until timestamp with time zone)'],
                    ['BEGIN', 'BEGIN PERFORM set_config(''memory.until'', until::text, true);'],
                    [$s$($3 IS NULL OR embedding.said_at >= $3)$s$, $s$($3 IS NULL OR embedding.said_at >= $3) AND embedding.said_at <= current_setting('memory.until')::timestamptz$s$]
                ];
                part text[];
            BEGIN
                FOREACH part SLICE 1 IN ARRAY changes LOOP
                    IF strpos(made, part[1]) = 0 THEN RAISE EXCEPTION '% has no %', 'nearest_moments_app_momentembedding', part[1]; END IF;
                    made := replace(made, part[1], part[2]);
                END LOOP;
                EXECUTE made;
            END $do$;
            REVOKE ALL ON FUNCTION nearest_moments_app_momentembedding_then FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION nearest_moments_app_momentembedding_then TO memory_request;

DO $do$
            DECLARE
                made text := pg_get_functiondef('nearest_moments_app_turnembedding'::regproc);
                changes text[] := ARRAY[
                    ['nearest_moments_app_turnembedding(', 'nearest_moments_app_turnembedding_then('],
                    ['most integer)', 'most integer, until timestamp with time zone)'],
                    ['BEGIN', 'BEGIN PERFORM set_config(''memory.until'', until::text, true);'],
                    [$s$($3 IS NULL OR embedding.said_at >= $3)$s$, $s$($3 IS NULL OR embedding.said_at >= $3) AND embedding.said_at <= current_setting('memory.until')::timestamptz$s$]
                ];
                part text[];
            BEGIN
                FOREACH part SLICE 1 IN ARRAY changes LOOP
                    IF strpos(made, part[1]) = 0 THEN RAISE EXCEPTION '% has no %', 'nearest_moments_app_turnembedding', part[1]; END IF;
                    made := replace(made, part[1], part[2]);
                END LOOP;
                EXECUTE made;
            END $do$;
            REVOKE ALL ON FUNCTION nearest_moments_app_turnembedding_then FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION nearest_moments_app_turnembedding_then TO memory_request;

CREATE FUNCTION shards_seen() RETURNS SETOF bigint LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 20 BEGIN ATOMIC
        SELECT id FROM moments_app_memorystream WHERE user_id IS NULL AND application_id = NULLIF(current_setting('memory.application', true), '')::bigint;
    END;
REVOKE ALL ON FUNCTION shards_seen() FROM PUBLIC; GRANT EXECUTE ON FUNCTION shards_seen() TO memory_request;

CREATE FUNCTION vocabularies_seen() RETURNS SETOF bigint LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 20 BEGIN ATOMIC
        SELECT vocabulary.id FROM moments_app_vocabulary vocabulary JOIN moments_app_memorystream stream ON stream.id = vocabulary.stream_id
        WHERE stream.user_id IS NULL AND stream.application_id = NULLIF(current_setting('memory.application', true), '')::bigint;
    END;
REVOKE ALL ON FUNCTION vocabularies_seen() FROM PUBLIC; GRANT EXECUTE ON FUNCTION vocabularies_seen() TO memory_request;

ALTER POLICY everybodys_read ON moments_app_memoryatom USING (user_id IS NULL AND stream_id IN (SELECT shards_seen()) AND (state <> 'evicted' OR current_setting('memory.everybodys', true) = 'on'));

ALTER POLICY everybodys_read ON moments_app_streamversion USING (user_id IS NULL AND stream_id IN (SELECT shards_seen()) AND (undone_at IS NULL OR current_setting('memory.everybodys', true) = 'on'));

ALTER POLICY everybodys_read ON moments_app_job USING (user_id IS NULL AND stream_id IN (SELECT shards_seen()) AND true);

ALTER POLICY everybodys_read ON moments_app_vocabulary USING (user_id IS NULL AND stream_id IN (SELECT shards_seen()) AND true);

ALTER POLICY everybodys_read ON moments_app_word USING (user_id IS NULL AND vocabulary_id IN (SELECT vocabularies_seen()) AND true);

ALTER POLICY everybodys_read ON moments_app_memorystream USING (user_id IS NULL AND application_id = (SELECT NULLIF(current_setting('memory.application', true), '')::bigint));

ALTER POLICY acting_user ON moments_app_promptresource USING (application_id IS NULL OR application_id = (SELECT NULLIF(current_setting('memory.application', true), '')::bigint));

ALTER POLICY acting_user ON sessions_app_session USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));

ALTER POLICY acting_user ON sessions_app_message USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));

ALTER POLICY acting_user ON moments_app_summary USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));

ALTER POLICY acting_user ON moments_app_moment USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));

ALTER POLICY acting_user ON moments_app_memoryatom USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));

ALTER POLICY acting_user ON moments_app_entity USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));

ALTER POLICY acting_user ON moments_app_owntext USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));

ALTER POLICY acting_user ON moments_app_correctedturn USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));

ALTER POLICY acting_user ON moments_app_memorystream USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));
