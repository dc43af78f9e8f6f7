CREATE TABLE "engine_requests" (
	"model" text NOT NULL,
	"replica" text NOT NULL,
	"hour" timestamp with time zone NOT NULL,
	"kind" text NOT NULL,
	"requests" bigint NOT NULL,
	"uncounted" bigint NOT NULL,
	"prompt_tokens" bigint NOT NULL,
	"completion_tokens" bigint NOT NULL,
	"last_at" timestamp with time zone NOT NULL,
	CONSTRAINT "engine_requests_hour_model_replica_kind_pk" PRIMARY KEY("hour","model","replica","kind")
);
--> statement-breakpoint
CREATE TABLE "replica_hours" (
	"run_id" uuid NOT NULL,
	"hour" timestamp with time zone NOT NULL,
	"prompt_tokens" bigint NOT NULL,
	"generation_tokens" bigint NOT NULL,
	"requests" bigint NOT NULL,
	"scraped_at" timestamp with time zone NOT NULL,
	CONSTRAINT "replica_hours_run_id_hour_pk" PRIMARY KEY("run_id","hour")
);
--> statement-breakpoint
CREATE TABLE "replica_runs" (
	"id" uuid PRIMARY KEY NOT NULL,
	"scope" text NOT NULL,
	"model" text NOT NULL,
	"replica" text NOT NULL,
	"driver" text NOT NULL,
	"host" text NOT NULL,
	"gpus" jsonb NOT NULL,
	"spec_hash" text NOT NULL,
	"image" text,
	"started_at" timestamp with time zone NOT NULL,
	"ready_at" timestamp with time zone,
	"ended_at" timestamp with time zone,
	"ended" text,
	"end_reason" text,
	"exit_code" integer,
	"prompt_tokens_first" bigint,
	"generation_tokens_first" bigint,
	"requests_first" bigint,
	"prompt_tokens_last" bigint,
	"generation_tokens_last" bigint,
	"requests_last" bigint,
	"scraped_at" timestamp with time zone,
	"process_started_at" text
);
--> statement-breakpoint
CREATE TABLE "gateway_runs" (
	"id" uuid PRIMARY KEY NOT NULL,
	"place_id" uuid NOT NULL,
	"host" text NOT NULL,
	"slot" integer NOT NULL,
	"version" text NOT NULL,
	"started_at" timestamp with time zone NOT NULL,
	"last_seen_at" timestamp with time zone NOT NULL,
	"ended_at" timestamp with time zone,
	"ended" text
);
--> statement-breakpoint
ALTER TABLE "usage_requests" ADD COLUMN "choices" smallint;--> statement-breakpoint
CREATE INDEX "replica_hours_hour_idx" ON "replica_hours" USING btree ("hour");--> statement-breakpoint
CREATE UNIQUE INDEX "replica_runs_open_key" ON "replica_runs" USING btree ("scope","replica") WHERE "replica_runs"."ended_at" is null;--> statement-breakpoint
CREATE INDEX "replica_runs_ended_idx" ON "replica_runs" USING btree ("ended_at");--> statement-breakpoint
CREATE INDEX "gateway_runs_open_idx" ON "gateway_runs" USING btree ("last_seen_at") WHERE "gateway_runs"."ended_at" is null;--> statement-breakpoint
CREATE INDEX "gateway_runs_ended_idx" ON "gateway_runs" USING btree ("ended_at");--> statement-breakpoint
CREATE OR REPLACE VIEW "usage_records" AS
SELECT r."id", o."id" AS "organization_id", p."id" AS "project_id", k."id" AS "key_id",
  m."name" AS "model", e."name" AS "endpoint", r."stream", coalesce(r."service_tier", 'default') AS "service_tier",
  r."status", r."outcome", r."reason", r."cache_hit", r."input_tokens", r."input_cached_tokens", r."output_tokens",
  r."output_reasoning_tokens", r."usage_source", r."cost", coalesce(r."written_off", 0) AS "written_off",
  coalesce(r."currency", 'USD') AS "currency", v."id" AS "price_version_id", r."queued_ms", r."first_byte_ms",
  r."total_ms", r."client_request_id", r."group_id", coalesce(r."choices", 1) AS "choices"
FROM "usage_requests" r
JOIN "usage_ids" o ON o."code" = r."organization" JOIN "usage_ids" p ON p."code" = r."project"
JOIN "usage_ids" k ON k."code" = r."key" JOIN "usage_ids" v ON v."code" = r."price_version"
JOIN "usage_names" m ON m."code" = r."model" JOIN "usage_names" e ON e."code" = r."endpoint";
