-- The name stems from the time when the column was added.
ALTER TABLE moments_app_memorystream
    RENAME CONSTRAINT moments_app_memoryst_application_id_aa42ac29_fk_sessions_ TO stream_application;

-- Search the words of tasks, goals and problems. The second takes stems that the application makes, the first serves
-- processes that still run a version before that.
CREATE FUNCTION search_moments_app_entity(person bigint, words text, wanted_status text, most integer) RETURNS TABLE (found bigint, rank real)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_custom_plan AS $$
            DECLARE
                any_word tsquery := replace(plainto_tsquery('english', words)::text, '&', '|');
                acting bigint := CASE WHEN current_setting('role') = 'memory_request' THEN NULLIF(current_setting('memory.user_pk', true), '')::bigint ELSE person END;
            BEGIN
                RETURN QUERY SELECT newest.id, ts_rank(newest.search_vector, any_word, 32) FROM (
                    SELECT id, search_vector FROM moments_app_entity
                    WHERE user_id = acting AND status = wanted_status AND search_vector @@ any_word
                    ORDER BY updated_at DESC, id DESC LIMIT most
                ) newest;
            END $$;
REVOKE ALL ON FUNCTION search_moments_app_entity(bigint, text, text, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION search_moments_app_entity(bigint, text, text, integer) TO memory_request, memory_operator;

CREATE FUNCTION search_moments_app_entity(person bigint, words tsquery, forms real, wanted_status text, most integer) RETURNS TABLE (found bigint, rank real)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_custom_plan AS $$
            DECLARE
                acting bigint := CASE WHEN current_setting('role') = 'memory_request' THEN NULLIF(current_setting('memory.user_pk', true), '')::bigint ELSE person END;
            BEGIN
                RETURN QUERY SELECT newest.id, (newest.rank / (newest.rank + 1))::real FROM (
                    SELECT id, ts_rank(search_vector, words) * forms AS rank FROM moments_app_entity
                    WHERE user_id = acting AND status = wanted_status AND search_vector @@ words
                    ORDER BY updated_at DESC, id DESC LIMIT most
                ) newest;
            END $$;
REVOKE ALL ON FUNCTION search_moments_app_entity(bigint, tsquery, real, text, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION search_moments_app_entity(bigint, tsquery, real, text, integer) TO memory_request, memory_operator;

-- Builds the index of a model's vectors.
CREATE FUNCTION index_vectors(kind text, model bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
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

-- The shards, and their vocabularies, that a request sees.
CREATE FUNCTION shards_seen() RETURNS SETOF bigint LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 20 BEGIN ATOMIC
        SELECT id FROM moments_app_memorystream WHERE user_id IS NULL AND application_id = NULLIF(current_setting('memory.application', true), '')::bigint;
    END;
REVOKE ALL ON FUNCTION shards_seen() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION shards_seen() TO memory_request;

CREATE FUNCTION vocabularies_seen() RETURNS SETOF bigint LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER ROWS 20 BEGIN ATOMIC
        SELECT vocabulary.id FROM moments_app_vocabulary vocabulary JOIN moments_app_memorystream stream ON stream.id = vocabulary.stream_id
        WHERE stream.user_id IS NULL AND stream.application_id = NULLIF(current_setting('memory.application', true), '')::bigint;
    END;
REVOKE ALL ON FUNCTION vocabularies_seen() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION vocabularies_seen() TO memory_request;

-- What requests, and operators who are limited to some applications, see and change.
ALTER TABLE django_q_ormq ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON django_q_ormq TO memory_request USING (true);
CREATE POLICY operators ON django_q_ormq TO memory_operator USING (false);
GRANT SELECT (id), INSERT ON django_q_ormq TO memory_request;

ALTER TABLE django_q_task ENABLE ROW LEVEL SECURITY;
CREATE POLICY operators ON django_q_task TO memory_operator USING (false);

ALTER TABLE moments_app_contextreceipt ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_contextreceipt TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON moments_app_contextreceipt TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_contextreceipt.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_contextreceipt TO memory_request;

ALTER TABLE moments_app_contradiction ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_contradiction TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON moments_app_contradiction TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_contradiction.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_contradiction TO memory_request;

ALTER TABLE moments_app_correctedturn ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_correctedturn TO memory_request USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));
CREATE POLICY operators ON moments_app_correctedturn TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_correctedturn.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_correctedturn TO memory_request;

ALTER TABLE moments_app_correction ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_correction TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON moments_app_correction TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_correction.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_correction TO memory_request;

GRANT SELECT ON moments_app_embeddingmodel TO memory_request;

ALTER TABLE moments_app_enginecall ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_enginecall TO memory_request USING (true);
CREATE POLICY operators ON moments_app_enginecall TO memory_operator USING (EXISTS (SELECT FROM moments_app_job seen WHERE seen.id = moments_app_enginecall.job_id));
GRANT SELECT (id, job_id), UPDATE (job_id) ON moments_app_enginecall TO memory_request;

ALTER TABLE moments_app_entity ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_entity TO memory_request USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));
CREATE POLICY operators ON moments_app_entity TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_entity.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_entity TO memory_request;

ALTER TABLE moments_app_entitylink ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_entitylink TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON moments_app_entitylink TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_entitylink.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_entitylink TO memory_request;

ALTER TABLE moments_app_factembedding ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_factembedding TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY everybodys_added ON moments_app_factembedding FOR INSERT TO memory_request WITH CHECK (user_id IS NULL AND (EXISTS (SELECT FROM moments_app_memoryatom seen WHERE seen.id = moments_app_factembedding.source_id)) AND current_setting('memory.everybodys', true) = 'on');
CREATE POLICY everybodys_changed ON moments_app_factembedding FOR UPDATE TO memory_request USING (user_id IS NULL AND (EXISTS (SELECT FROM moments_app_memoryatom seen WHERE seen.id = moments_app_factembedding.source_id)) AND current_setting('memory.everybodys', true) = 'on');
CREATE POLICY everybodys_read ON moments_app_factembedding FOR SELECT TO memory_request USING (user_id IS NULL AND (EXISTS (SELECT FROM moments_app_memoryatom seen WHERE seen.id = moments_app_factembedding.source_id)) AND (true OR current_setting('memory.everybodys', true) = 'on'));
CREATE POLICY everybodys_removed ON moments_app_factembedding FOR DELETE TO memory_request USING (user_id IS NULL AND (EXISTS (SELECT FROM moments_app_memoryatom seen WHERE seen.id = moments_app_factembedding.source_id)) AND current_setting('memory.everybodys', true) = 'on');
CREATE POLICY operators ON moments_app_factembedding TO memory_operator USING (CASE WHEN user_id IS NULL THEN (EXISTS (SELECT FROM moments_app_memoryatom seen WHERE seen.id = moments_app_factembedding.source_id)) ELSE (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_factembedding.user_id)) END);
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_factembedding TO memory_request;

ALTER TABLE moments_app_failuregroup ENABLE ROW LEVEL SECURITY;
CREATE POLICY operators ON moments_app_failuregroup TO memory_operator USING (application_id = ANY ((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]));

ALTER TABLE moments_app_failurehour ENABLE ROW LEVEL SECURITY;
CREATE POLICY operators ON moments_app_failurehour TO memory_operator USING (EXISTS (SELECT FROM moments_app_failuregroup seen WHERE seen.id = moments_app_failurehour.failure_id));

ALTER TABLE moments_app_job ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_job TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY everybodys_added ON moments_app_job FOR INSERT TO memory_request WITH CHECK (user_id IS NULL AND (EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_job.stream_id)) AND current_setting('memory.everybodys', true) = 'on');
CREATE POLICY everybodys_changed ON moments_app_job FOR UPDATE TO memory_request USING (user_id IS NULL AND (EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_job.stream_id)) AND current_setting('memory.everybodys', true) = 'on');
CREATE POLICY everybodys_read ON moments_app_job FOR SELECT TO memory_request USING (user_id IS NULL AND (stream_id IN (SELECT shards_seen())) AND true);
CREATE POLICY everybodys_removed ON moments_app_job FOR DELETE TO memory_request USING (user_id IS NULL AND (EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_job.stream_id)) AND current_setting('memory.everybodys', true) = 'on');
CREATE POLICY operators ON moments_app_job TO memory_operator USING (CASE WHEN user_id IS NULL THEN (EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_job.stream_id)) ELSE (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_job.user_id)) END);
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_job TO memory_request;

ALTER TABLE moments_app_keptexchange ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_keptexchange TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON moments_app_keptexchange TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_keptexchange.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_keptexchange TO memory_request;

ALTER TABLE moments_app_memoryatom ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_memoryatom TO memory_request USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));
CREATE POLICY everybodys_added ON moments_app_memoryatom FOR INSERT TO memory_request WITH CHECK (user_id IS NULL AND (EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_memoryatom.stream_id)) AND current_setting('memory.everybodys', true) = 'on');
CREATE POLICY everybodys_changed ON moments_app_memoryatom FOR UPDATE TO memory_request USING (user_id IS NULL AND (EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_memoryatom.stream_id)) AND current_setting('memory.everybodys', true) = 'on');
CREATE POLICY everybodys_read ON moments_app_memoryatom FOR SELECT TO memory_request USING (user_id IS NULL AND (stream_id IN (SELECT shards_seen())) AND (state <> 'evicted' OR current_setting('memory.everybodys', true) = 'on'));
CREATE POLICY everybodys_removed ON moments_app_memoryatom FOR DELETE TO memory_request USING (user_id IS NULL AND (EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_memoryatom.stream_id)) AND current_setting('memory.everybodys', true) = 'on');
CREATE POLICY operators ON moments_app_memoryatom TO memory_operator USING (CASE WHEN user_id IS NULL THEN (EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_memoryatom.stream_id)) ELSE (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_memoryatom.user_id)) END);
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_memoryatom TO memory_request;

ALTER TABLE moments_app_memorystream ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_memorystream TO memory_request USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));
CREATE POLICY everybodys_added ON moments_app_memorystream FOR INSERT TO memory_request WITH CHECK (user_id IS NULL AND (application_id = NULLIF(current_setting('memory.application', true), '')::bigint) AND current_setting('memory.everybodys', true) = 'on');
CREATE POLICY everybodys_changed ON moments_app_memorystream FOR UPDATE TO memory_request USING (user_id IS NULL AND (application_id = NULLIF(current_setting('memory.application', true), '')::bigint) AND current_setting('memory.everybodys', true) = 'on');
CREATE POLICY everybodys_read ON moments_app_memorystream FOR SELECT TO memory_request USING (user_id IS NULL AND (application_id = (SELECT NULLIF(current_setting('memory.application', true), '')::bigint)));
CREATE POLICY everybodys_removed ON moments_app_memorystream FOR DELETE TO memory_request USING (user_id IS NULL AND (application_id = NULLIF(current_setting('memory.application', true), '')::bigint) AND current_setting('memory.everybodys', true) = 'on');
CREATE POLICY operators ON moments_app_memorystream TO memory_operator USING (CASE WHEN user_id IS NULL THEN (application_id = ANY ((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[])) ELSE (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_memorystream.user_id)) END);
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_memorystream TO memory_request;

ALTER TABLE moments_app_moment ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_moment TO memory_request USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));
CREATE POLICY operators ON moments_app_moment TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_moment.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_moment TO memory_request;

ALTER TABLE moments_app_momentembedding ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_momentembedding TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON moments_app_momentembedding TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_momentembedding.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_momentembedding TO memory_request;

ALTER TABLE moments_app_owntext ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_owntext TO memory_request USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));
CREATE POLICY operators ON moments_app_owntext TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_owntext.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_owntext TO memory_request;

ALTER TABLE moments_app_probe ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_probe TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON moments_app_probe TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_probe.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_probe TO memory_request;

ALTER TABLE moments_app_proberesult ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_proberesult TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON moments_app_proberesult TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_proberesult.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_proberesult TO memory_request;

ALTER TABLE moments_app_profileline ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_profileline TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON moments_app_profileline TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_profileline.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_profileline TO memory_request;

ALTER TABLE moments_app_profilephrase ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_profilephrase TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON moments_app_profilephrase TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_profilephrase.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_profilephrase TO memory_request;

ALTER TABLE moments_app_promptresource ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_promptresource TO memory_request USING (application_id IS NULL OR (application_id = (SELECT NULLIF(current_setting('memory.application', true), '')::bigint)));
CREATE POLICY operators ON moments_app_promptresource TO memory_operator USING (application_id = ANY ((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]));
CREATE POLICY operators_read ON moments_app_promptresource FOR SELECT TO memory_operator USING (application_id IS NULL);
GRANT SELECT ON moments_app_promptresource TO memory_request;

ALTER TABLE moments_app_prompttrial ENABLE ROW LEVEL SECURITY;
CREATE POLICY operators ON moments_app_prompttrial TO memory_operator USING (EXISTS (SELECT FROM moments_app_promptversion seen WHERE seen.id = moments_app_prompttrial.version_id));

ALTER TABLE moments_app_promptversion ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_promptversion TO memory_request USING (EXISTS (SELECT FROM moments_app_promptresource seen WHERE seen.id = moments_app_promptversion.resource_id));
CREATE POLICY operators ON moments_app_promptversion TO memory_operator USING (EXISTS (SELECT FROM moments_app_promptresource own WHERE ((own.id = moments_app_promptversion.resource_id) AND (own.application_id = ANY ((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[])))));
CREATE POLICY operators_read ON moments_app_promptversion FOR SELECT TO memory_operator USING (EXISTS (SELECT FROM moments_app_promptresource seen WHERE seen.id = moments_app_promptversion.resource_id));
GRANT SELECT ON moments_app_promptversion TO memory_request;

ALTER TABLE moments_app_release ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_release TO memory_request USING (false);
CREATE POLICY operators ON moments_app_release TO memory_operator USING (EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_release.stream_id));
GRANT SELECT, UPDATE (atom_id) ON moments_app_release TO memory_request;

ALTER TABLE moments_app_releasesource ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_releasesource TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON moments_app_releasesource TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_releasesource.user_id));
GRANT SELECT, UPDATE (atom_id) ON moments_app_releasesource TO memory_request;

ALTER TABLE moments_app_retracteditem ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_retracteditem TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON moments_app_retracteditem TO memory_operator USING (CASE WHEN user_id IS NULL THEN (EXISTS (SELECT FROM moments_app_retraction seen WHERE seen.id = moments_app_retracteditem.retraction_id)) ELSE (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_retracteditem.user_id)) END);
GRANT SELECT ON moments_app_retracteditem TO memory_request;

ALTER TABLE moments_app_retraction ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_retraction TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON moments_app_retraction TO memory_operator USING (CASE WHEN user_id IS NULL THEN (EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_retraction.stream_id)) ELSE (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_retraction.user_id)) END);
GRANT SELECT, UPDATE ON moments_app_retraction TO memory_request;

ALTER TABLE moments_app_servedline ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_servedline TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON moments_app_servedline TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_servedline.user_id));
GRANT SELECT ON moments_app_servedline TO memory_request;

ALTER TABLE moments_app_streamversion ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_streamversion TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY everybodys_added ON moments_app_streamversion FOR INSERT TO memory_request WITH CHECK (user_id IS NULL AND (EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_streamversion.stream_id)) AND current_setting('memory.everybodys', true) = 'on');
CREATE POLICY everybodys_changed ON moments_app_streamversion FOR UPDATE TO memory_request USING (user_id IS NULL AND (EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_streamversion.stream_id)) AND current_setting('memory.everybodys', true) = 'on');
CREATE POLICY everybodys_read ON moments_app_streamversion FOR SELECT TO memory_request USING (user_id IS NULL AND (stream_id IN (SELECT shards_seen())) AND (undone_at IS NULL OR current_setting('memory.everybodys', true) = 'on'));
CREATE POLICY everybodys_removed ON moments_app_streamversion FOR DELETE TO memory_request USING (user_id IS NULL AND (EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_streamversion.stream_id)) AND current_setting('memory.everybodys', true) = 'on');
CREATE POLICY operators ON moments_app_streamversion TO memory_operator USING (CASE WHEN user_id IS NULL THEN (EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_streamversion.stream_id)) ELSE (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_streamversion.user_id)) END);
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_streamversion TO memory_request;

ALTER TABLE moments_app_summary ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_summary TO memory_request USING (user_id = (SELECT NULLIF(current_setting('memory.user_pk', true), '')::bigint));
CREATE POLICY operators ON moments_app_summary TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_summary.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_summary TO memory_request;

ALTER TABLE moments_app_trialside ENABLE ROW LEVEL SECURITY;
CREATE POLICY operators ON moments_app_trialside TO memory_operator USING (EXISTS (SELECT FROM moments_app_prompttrial seen WHERE seen.id = moments_app_trialside.trial_id));

ALTER TABLE moments_app_turnembedding ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_turnembedding TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY operators ON moments_app_turnembedding TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_turnembedding.user_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON moments_app_turnembedding TO memory_request;

ALTER TABLE moments_app_vocabulary ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_vocabulary TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY everybodys_read ON moments_app_vocabulary FOR SELECT TO memory_request USING (user_id IS NULL AND (stream_id IN (SELECT shards_seen())) AND true);
CREATE POLICY operators ON moments_app_vocabulary TO memory_operator USING (CASE WHEN user_id IS NULL THEN (EXISTS (SELECT FROM moments_app_memorystream seen WHERE seen.id = moments_app_vocabulary.stream_id)) ELSE (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_vocabulary.user_id)) END);
GRANT SELECT ON moments_app_vocabulary TO memory_request;

ALTER TABLE moments_app_webhookdelivery ENABLE ROW LEVEL SECURITY;
CREATE POLICY operators ON moments_app_webhookdelivery TO memory_operator USING (EXISTS (SELECT FROM moments_app_webhookendpoint seen WHERE seen.id = moments_app_webhookdelivery.endpoint_id));

ALTER TABLE moments_app_webhookendpoint ENABLE ROW LEVEL SECURITY;
CREATE POLICY operators ON moments_app_webhookendpoint TO memory_operator USING (application_id = ANY ((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]));

ALTER TABLE moments_app_word ENABLE ROW LEVEL SECURITY;
CREATE POLICY acting_user ON moments_app_word TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
CREATE POLICY everybodys_read ON moments_app_word FOR SELECT TO memory_request USING (user_id IS NULL AND (vocabulary_id IN (SELECT vocabularies_seen())) AND true);
CREATE POLICY operators ON moments_app_word TO memory_operator USING (CASE WHEN user_id IS NULL THEN (EXISTS (SELECT FROM moments_app_vocabulary seen WHERE seen.id = moments_app_word.vocabulary_id)) ELSE (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = moments_app_word.user_id)) END);
GRANT SELECT ON moments_app_word TO memory_request;
