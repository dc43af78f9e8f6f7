CREATE TABLE "usage_latency" (
	"organization" integer NOT NULL,
	"key" integer NOT NULL,
	"project" integer NOT NULL,
	"model" integer NOT NULL,
	"hour" timestamp with time zone NOT NULL,
	"measure" smallint NOT NULL,
	"bucket" smallint NOT NULL,
	"requests" integer NOT NULL,
	CONSTRAINT "usage_latency_organization_hour_key_project_model_measure_bucket_pk" PRIMARY KEY("organization","hour","key","project","model","measure","bucket")
);
--> statement-breakpoint
ALTER TABLE "rejected_requests" ADD COLUMN "end_user" text;--> statement-breakpoint
ALTER TABLE "usage_requests" ADD COLUMN "end_user" text;--> statement-breakpoint
CREATE INDEX "usage_latency_hour_idx" ON "usage_latency" USING brin ("hour");--> statement-breakpoint
CREATE INDEX "usage_requests_user_idx" ON "usage_requests" USING btree ("organization","end_user","id") WHERE "usage_requests"."end_user" is not null;--> statement-breakpoint
CREATE OR REPLACE VIEW "usage_records" AS
SELECT r."id", o."id" AS "organization_id", p."id" AS "project_id", k."id" AS "key_id",
  m."name" AS "model", e."name" AS "endpoint", r."stream", coalesce(r."service_tier", 'default') AS "service_tier",
  r."status", r."outcome", r."reason", r."cache_hit", r."input_tokens", r."input_cached_tokens", r."output_tokens",
  r."output_reasoning_tokens", r."usage_source", r."cost", coalesce(r."written_off", 0) AS "written_off",
  coalesce(r."currency", 'USD') AS "currency", v."id" AS "price_version_id", r."queued_ms", r."first_byte_ms",
  r."total_ms", r."client_request_id", r."group_id", coalesce(r."choices", 1) AS "choices",
  f."name" AS "fallback_for", coalesce(r."input_cache_write_tokens", 0) AS "input_cache_write_tokens", r."end_user"
FROM "usage_requests" r
JOIN "usage_ids" o ON o."code" = r."organization" JOIN "usage_ids" p ON p."code" = r."project"
JOIN "usage_ids" k ON k."code" = r."key" JOIN "usage_ids" v ON v."code" = r."price_version"
JOIN "usage_names" m ON m."code" = r."model" JOIN "usage_names" e ON e."code" = r."endpoint"
LEFT JOIN "usage_names" f ON f."code" = r."fallback_for";
