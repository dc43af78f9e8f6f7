ALTER TABLE "usage_requests" ADD COLUMN "input_cache_write_tokens" integer;--> statement-breakpoint
CREATE OR REPLACE VIEW "usage_records" AS
SELECT r."id", o."id" AS "organization_id", p."id" AS "project_id", k."id" AS "key_id",
  m."name" AS "model", e."name" AS "endpoint", r."stream", coalesce(r."service_tier", 'default') AS "service_tier",
  r."status", r."outcome", r."reason", r."cache_hit", r."input_tokens", r."input_cached_tokens", r."output_tokens",
  r."output_reasoning_tokens", r."usage_source", r."cost", coalesce(r."written_off", 0) AS "written_off",
  coalesce(r."currency", 'USD') AS "currency", v."id" AS "price_version_id", r."queued_ms", r."first_byte_ms",
  r."total_ms", r."client_request_id", r."group_id", coalesce(r."choices", 1) AS "choices",
  f."name" AS "fallback_for", coalesce(r."input_cache_write_tokens", 0) AS "input_cache_write_tokens"
FROM "usage_requests" r
JOIN "usage_ids" o ON o."code" = r."organization" JOIN "usage_ids" p ON p."code" = r."project"
JOIN "usage_ids" k ON k."code" = r."key" JOIN "usage_ids" v ON v."code" = r."price_version"
JOIN "usage_names" m ON m."code" = r."model" JOIN "usage_names" e ON e."code" = r."endpoint"
LEFT JOIN "usage_names" f ON f."code" = r."fallback_for";
