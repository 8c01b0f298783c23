DO $$ BEGIN CREATE ROLE memory_operator NOLOGIN;
        EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL; END $$;
        DO $$ BEGIN GRANT memory_operator TO CURRENT_USER;
        EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL; END $$;
        SET LOCAL ROLE memory_operator;
        RESET ROLE;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO memory_operator;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO memory_operator;
        ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO memory_operator;
        ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE ON SEQUENCES TO memory_operator;

ALTER TABLE sessions_app_userprofile ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON sessions_app_userprofile TO memory_operator USING (application_id = ANY((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]));

ALTER TABLE sessions_app_session ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON sessions_app_session TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = sessions_app_session.user_id));

ALTER TABLE sessions_app_message ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON sessions_app_message TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = sessions_app_message.user_id));

ALTER TABLE sessions_app_profileversion ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON sessions_app_profileversion TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = sessions_app_profileversion.user_id));

ALTER TABLE sessions_app_archive ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON sessions_app_archive TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = sessions_app_archive.user_id));

ALTER TABLE sessions_app_event ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON sessions_app_event TO memory_operator USING (CASE WHEN user_pk IS NULL THEN application_id = ANY((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]) ELSE EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = sessions_app_event.user_pk) END);

ALTER TABLE sessions_app_apikey ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON sessions_app_apikey TO memory_operator USING (application_id = ANY((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]));

ALTER TABLE sessions_app_application ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON sessions_app_application TO memory_operator USING (false);
            CREATE POLICY operators_read ON sessions_app_application FOR SELECT TO memory_operator USING (id = ANY((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]));

ALTER TABLE sessions_app_loginlimit ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON sessions_app_loginlimit TO memory_operator USING (false);
            CREATE POLICY operators_read ON sessions_app_loginlimit FOR SELECT TO memory_operator USING (login_id = NULLIF(current_setting('memory.operator', true), '')::bigint);

ALTER TABLE auth_user ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON auth_user TO memory_operator USING (id = NULLIF(current_setting('memory.operator', true), '')::bigint);

ALTER TABLE django_admin_log ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON django_admin_log TO memory_operator USING (user_id = NULLIF(current_setting('memory.operator', true), '')::bigint);

ALTER TABLE sessions_app_dailylimit ENABLE ROW LEVEL SECURITY;
            CREATE POLICY acting_user ON sessions_app_dailylimit TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            GRANT SELECT ON sessions_app_dailylimit TO memory_request;

ALTER TABLE sessions_app_dailyusage ENABLE ROW LEVEL SECURITY;
            CREATE POLICY acting_user ON sessions_app_dailyusage TO memory_request USING (user_id = NULLIF(current_setting('memory.user_pk', true), '')::bigint);
            GRANT SELECT ON sessions_app_dailyusage TO memory_request;

ALTER TABLE sessions_app_dailylimit ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON sessions_app_dailylimit TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = sessions_app_dailylimit.user_id) OR EXISTS (SELECT FROM sessions_app_apikey seen WHERE seen.id = sessions_app_dailylimit.key_id));
            CREATE POLICY operators_read ON sessions_app_dailylimit FOR SELECT TO memory_operator USING (application_id = ANY((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]));

ALTER TABLE sessions_app_dailyusage ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON sessions_app_dailyusage TO memory_operator USING (EXISTS (SELECT FROM sessions_app_userprofile seen WHERE seen.id = sessions_app_dailyusage.user_id) OR EXISTS (SELECT FROM sessions_app_apikey seen WHERE seen.id = sessions_app_dailyusage.key_id));
            CREATE POLICY operators_read ON sessions_app_dailyusage FOR SELECT TO memory_operator USING (application_id = ANY((SELECT string_to_array(current_setting('memory.applications', true), ',')::bigint[])::bigint[]));

CREATE FUNCTION count_usage(kind text, pk bigint, name text, application bigint, more_requests bigint, more_bytes bigint, more_calls bigint, more_usd numeric, on_day date) RETURNS TABLE (requests bigint, stored_bytes bigint, model_calls bigint, usd numeric, most_requests bigint, most_bytes bigint, most_calls bigint, most_usd numeric)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    of_key bigint := CASE kind WHEN 'key' THEN pk END;
    of_application bigint := CASE kind WHEN 'application' THEN pk END;
    of_person bigint := CASE WHEN kind <> 'person' THEN NULL WHEN current_setting('role') = 'memory_request' THEN NULLIF(current_setting('memory.user_pk', true), '')::bigint WHEN pk IS NOT NULL THEN pk
        ELSE (SELECT person.id FROM sessions_app_userprofile person WHERE person.application_id = application AND person.user_id = name) END;
    holder bigint := CASE kind WHEN 'key' THEN (SELECT held.user_id FROM sessions_app_apikey held WHERE held.id = pk)
        ELSE of_person END;
BEGIN
    IF more_requests + more_bytes + more_calls + more_usd > 0 THEN
        UPDATE sessions_app_dailyusage AS counted SET
            requests = counted.requests + more_requests, stored_bytes = counted.stored_bytes + more_bytes,
            model_calls = counted.model_calls + more_calls, usd = counted.usd + more_usd
        WHERE counted.id = (
            SELECT free.id FROM sessions_app_dailyusage free
            WHERE free.day = on_day
            AND (free.key_id = of_key OR free.user_id = of_person OR free.application_id = of_application)
            LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
        );
        IF NOT FOUND THEN
            IF holder IS NOT NULL THEN
                PERFORM FROM sessions_app_userprofile person WHERE person.id = holder FOR KEY SHARE SKIP LOCKED;
            ELSIF of_key IS NOT NULL THEN
                PERFORM FROM sessions_app_apikey held WHERE held.id = of_key FOR KEY SHARE SKIP LOCKED;
            ELSE
                PERFORM FROM sessions_app_application held WHERE held.id = of_application FOR KEY SHARE SKIP LOCKED;
            END IF;
            IF FOUND THEN
                INSERT INTO sessions_app_dailyusage (
                    key_id, user_id, application_id, day, requests, stored_bytes, model_calls, usd
                ) VALUES (
                    of_key, of_person, of_application, on_day, more_requests, more_bytes, more_calls, more_usd
                );
            END IF;
        END IF;
    END IF;
    RETURN QUERY SELECT total.*, own.requests, own.stored_bytes, own.model_calls, own.usd::numeric FROM (
        SELECT COALESCE(sum(today.requests), 0)::bigint, COALESCE(sum(today.stored_bytes), 0)::bigint,
            COALESCE(sum(today.model_calls), 0)::bigint, COALESCE(sum(today.usd), 0)::numeric
        FROM sessions_app_dailyusage today
        WHERE today.day = on_day
        AND (today.key_id = of_key OR today.user_id = of_person OR today.application_id = of_application)
    ) total LEFT JOIN sessions_app_dailylimit own
        ON own.key_id = of_key OR own.user_id = of_person OR own.application_id = of_application;
END $$;
REVOKE ALL ON FUNCTION count_usage(kind text, pk bigint, name text, application bigint, more_requests bigint, more_bytes bigint, more_calls bigint, more_usd numeric, on_day date) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION count_usage(kind text, pk bigint, name text, application bigint, more_requests bigint, more_bytes bigint, more_calls bigint, more_usd numeric, on_day date) TO memory_request;

DO $$ BEGIN CREATE ROLE memory_web NOLOGIN NOINHERIT;
        EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL; END $$;
        DO $$ BEGIN GRANT memory_web TO CURRENT_USER;
        EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL; END $$;
        SET LOCAL ROLE memory_web;
        RESET ROLE;
        

        DO $$ BEGIN CREATE ROLE memory_admin NOLOGIN NOINHERIT;
        EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL; END $$;
        DO $$ BEGIN GRANT memory_admin TO CURRENT_USER;
        EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL; END $$;
        SET LOCAL ROLE memory_admin;
        RESET ROLE;
        

        DO $$ BEGIN CREATE ROLE memory_worker NOLOGIN NOINHERIT;
        EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL; END $$;
        DO $$ BEGIN GRANT memory_worker TO CURRENT_USER;
        EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL; END $$;
        SET LOCAL ROLE memory_worker;
        RESET ROLE;

DO $do$ BEGIN EXECUTE replace(pg_get_functiondef('recall_sessions_app_message'::regproc), 'max(cardinality(word.positions))', 'COALESCE(max(cardinality(word.positions)), 1)'); END $do$;

ALTER TABLE sessions_app_oauthclient ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON sessions_app_oauthclient TO memory_operator USING (false);
            CREATE POLICY operators_read ON sessions_app_oauthclient FOR SELECT TO memory_operator USING (true);

ALTER TABLE sessions_app_oauthgrant ENABLE ROW LEVEL SECURITY;
            CREATE POLICY operators ON sessions_app_oauthgrant TO memory_operator USING (EXISTS (SELECT FROM sessions_app_apikey seen WHERE seen.id = sessions_app_oauthgrant.key_id));
