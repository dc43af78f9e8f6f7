-- A gateway of an earlier version cannot write to these tables: its records would be refused. One that lives says so
-- every two seconds.
DO $$
DECLARE
  seen timestamp with time zone := (SELECT max("last_seen_at") FROM "gateways");
BEGIN
  FOR attempt IN 1..16 LOOP
    EXIT WHEN seen IS NULL;
    PERFORM pg_sleep(0.5);
    IF (SELECT max("last_seen_at") FROM "gateways") > seen THEN
      RAISE EXCEPTION 'a gateway of an earlier version runs on this database: stop all gateways, then start this one'
        USING ERRCODE = 'object_in_use';
    END IF;
  END LOOP;
END
$$;
--> statement-breakpoint
CREATE TYPE "public"."usage_outcome" AS ENUM('completed', 'aborted', 'ended', 'failed');--> statement-breakpoint
CREATE TYPE "public"."usage_source" AS ENUM('engine', 'last_seen', 'none');--> statement-breakpoint
CREATE TYPE "public"."ledger_account" AS ENUM('wallet', 'funding', 'revenue', 'adjustments');--> statement-breakpoint
CREATE TYPE "public"."ledger_entry_type" AS ENUM('credit', 'usage', 'adjustment');--> statement-breakpoint
CREATE SEQUENCE "public"."ledger_groups" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1;--> statement-breakpoint

-- Usage in tables of a smaller layout, with the partitions that there are. Ids and names have codes.
CREATE TABLE "usage_ids" (
	"code" integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "usage_ids_code_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"id" uuid NOT NULL,
	CONSTRAINT "usage_ids_id_unique" UNIQUE("id")
);
--> statement-breakpoint
CREATE TABLE "usage_names" (
	"code" integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "usage_names_code_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"name" text NOT NULL,
	CONSTRAINT "usage_names_name_unique" UNIQUE("name")
);
--> statement-breakpoint
INSERT INTO "usage_ids" ("id")
SELECT DISTINCT n."id" FROM (
  SELECT DISTINCT "organization_id", "project_id", "key_id", "price_version_id" FROM "usage_records"
  UNION ALL SELECT DISTINCT "organization_id", "project_id", "key_id", NULL::uuid FROM "usage_hourly"
) AS r, unnest(ARRAY["organization_id", "project_id", "key_id", "price_version_id"]) AS n("id")
WHERE n."id" IS NOT NULL ORDER BY 1;
--> statement-breakpoint
INSERT INTO "usage_names" ("name")
SELECT "model" FROM "usage_records" UNION SELECT "endpoint" FROM "usage_records" UNION SELECT "model" FROM "usage_hourly" ORDER BY 1;
--> statement-breakpoint
ANALYZE "usage_ids";--> statement-breakpoint
ANALYZE "usage_names";--> statement-breakpoint
CREATE TABLE "usage_requests" (
	"group_id" bigint,
	"organization" integer NOT NULL,
	"project" integer NOT NULL,
	"key" integer NOT NULL,
	"price_version" integer NOT NULL,
	"model" integer NOT NULL,
	"endpoint" integer NOT NULL,
	"input_tokens" integer NOT NULL,
	"input_cached_tokens" integer NOT NULL,
	"output_tokens" integer NOT NULL,
	"output_reasoning_tokens" integer NOT NULL,
	"queued_ms" integer NOT NULL,
	"first_byte_ms" integer,
	"total_ms" integer NOT NULL,
	"outcome" "usage_outcome" NOT NULL,
	"usage_source" "usage_source" NOT NULL,
	"status" smallint NOT NULL,
	"stream" boolean NOT NULL,
	"cache_hit" boolean NOT NULL,
	"id" uuid NOT NULL,
	"cost" numeric(38, 0) NOT NULL,
	"written_off" numeric(38, 0),
	"currency" text,
	"service_tier" text,
	"reason" text,
	"client_request_id" text
) PARTITION BY RANGE ("id");
--> statement-breakpoint
DO $$
DECLARE
  part record;
BEGIN
  FOR part IN
    SELECT c.relname AS name, pg_get_expr(c.relpartbound, c.oid) AS bounds
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = '"usage_records"'::regclass ORDER BY c.relname
  LOOP
    EXECUTE format('CREATE TABLE %I PARTITION OF "usage_requests" %s',
      replace(part.name, 'usage_records', 'usage_requests'), part.bounds);
  END LOOP;
END
$$;
--> statement-breakpoint
-- A count that an engine made up and that no integer holds becomes the largest; what was charged for it stays.
INSERT INTO "usage_requests"
SELECT NULL, o."code", p."code", k."code", v."code", m."code", e."code", least("input_tokens", 2147483647),
  least("input_cached_tokens", 2147483647), least("output_tokens", 2147483647),
  least("output_reasoning_tokens", 2147483647), "queued_ms", "first_byte_ms", "total_ms", "outcome"::"usage_outcome",
  "usage_source"::"usage_source", "status", "stream", "cache_hit", r."id", "cost", nullif("written_off", 0),
  nullif("currency", 'USD'), nullif("service_tier", 'default'), "reason", "client_request_id"
FROM "usage_records" r
JOIN "usage_ids" o ON o."id" = r."organization_id" JOIN "usage_ids" p ON p."id" = r."project_id"
JOIN "usage_ids" k ON k."id" = r."key_id" JOIN "usage_ids" v ON v."id" = r."price_version_id"
JOIN "usage_names" m ON m."name" = r."model" JOIN "usage_names" e ON e."name" = r."endpoint";
--> statement-breakpoint
DROP TABLE "usage_records";--> statement-breakpoint
ALTER TABLE "usage_requests" ADD CONSTRAINT "usage_requests_organization_id_pk" PRIMARY KEY("organization","id");--> statement-breakpoint
CREATE INDEX "usage_requests_key_idx" ON "usage_requests" USING btree ("key","id");--> statement-breakpoint
CREATE INDEX "usage_requests_group_idx" ON "usage_requests" USING btree ("group_id") WHERE "usage_requests"."group_id" is not null;--> statement-breakpoint
CREATE VIEW "usage_records" AS
SELECT r."id", o."id" AS "organization_id", p."id" AS "project_id", k."id" AS "key_id",
  m."name" AS "model", e."name" AS "endpoint", r."stream", coalesce(r."service_tier", 'default') AS "service_tier",
  r."status", r."outcome", r."reason", r."cache_hit", r."input_tokens", r."input_cached_tokens", r."output_tokens",
  r."output_reasoning_tokens", r."usage_source", r."cost", coalesce(r."written_off", 0) AS "written_off",
  coalesce(r."currency", 'USD') AS "currency", v."id" AS "price_version_id", r."queued_ms", r."first_byte_ms",
  r."total_ms", r."client_request_id", r."group_id"
FROM "usage_requests" r
JOIN "usage_ids" o ON o."code" = r."organization" JOIN "usage_ids" p ON p."code" = r."project"
JOIN "usage_ids" k ON k."code" = r."key" JOIN "usage_ids" v ON v."code" = r."price_version"
JOIN "usage_names" m ON m."code" = r."model" JOIN "usage_names" e ON e."code" = r."endpoint";
--> statement-breakpoint
ALTER TABLE "usage_hourly" RENAME TO "old_usage_hourly";--> statement-breakpoint
CREATE TABLE "usage_hourly" (
	"hour" timestamp with time zone NOT NULL,
	"organization" integer NOT NULL,
	"key" integer NOT NULL,
	"project" integer NOT NULL,
	"model" integer NOT NULL,
	"requests" integer NOT NULL,
	"completed" integer NOT NULL,
	"aborted" integer NOT NULL,
	"ended" integer NOT NULL,
	"failed" integer NOT NULL,
	"cache_hits" integer NOT NULL,
	"input_tokens" bigint NOT NULL,
	"input_cached_tokens" bigint NOT NULL,
	"output_tokens" bigint NOT NULL,
	"output_reasoning_tokens" bigint NOT NULL,
	"cost" numeric(38, 0) NOT NULL
);
--> statement-breakpoint
INSERT INTO "usage_hourly"
SELECT h."hour", o."code", k."code", p."code", m."code", h."requests", h."completed", h."aborted", h."ended", h."failed",
  h."cache_hits", h."input_tokens", h."input_cached_tokens", h."output_tokens", h."output_reasoning_tokens", h."cost"
FROM "old_usage_hourly" h
JOIN "usage_ids" o ON o."id" = h."organization_id" JOIN "usage_ids" p ON p."id" = h."project_id"
JOIN "usage_ids" k ON k."id" = h."key_id" JOIN "usage_names" m ON m."name" = h."model"
ORDER BY o."code", h."hour";
--> statement-breakpoint
DROP TABLE "old_usage_hourly";--> statement-breakpoint
ALTER TABLE "usage_hourly" ADD CONSTRAINT "usage_hourly_organization_hour_key_project_model_pk" PRIMARY KEY("organization","hour","key","project","model");--> statement-breakpoint
CREATE TABLE "usage_daily" (
	"organization" integer NOT NULL,
	"key" integer NOT NULL,
	"project" integer NOT NULL,
	"model" integer NOT NULL,
	"day" date NOT NULL,
	"requests" integer NOT NULL,
	"completed" integer NOT NULL,
	"aborted" integer NOT NULL,
	"ended" integer NOT NULL,
	"failed" integer NOT NULL,
	"cache_hits" integer NOT NULL,
	"input_tokens" bigint NOT NULL,
	"input_cached_tokens" bigint NOT NULL,
	"output_tokens" bigint NOT NULL,
	"output_reasoning_tokens" bigint NOT NULL,
	"cost" numeric(38, 0) NOT NULL,
	CONSTRAINT "usage_daily_organization_day_key_project_model_pk" PRIMARY KEY("organization","day","key","project","model")
);
--> statement-breakpoint
INSERT INTO "usage_daily"
SELECT "organization", "key", "project", "model", ("hour" AT TIME ZONE 'UTC')::date, sum("requests"),
  sum("completed"), sum("aborted"), sum("ended"), sum("failed"), sum("cache_hits"), sum("input_tokens"),
  sum("input_cached_tokens"), sum("output_tokens"), sum("output_reasoning_tokens"), sum("cost")
FROM "usage_hourly" GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 5, 2, 3, 4;
--> statement-breakpoint

-- The ledger, numbered by organization. What it has already is before the chain: such entries have no head.
DROP INDEX "ledger_entries_organization_idx";--> statement-breakpoint
DROP INDEX "ledger_entries_request_key";--> statement-breakpoint
DROP INDEX "ledger_entries_reference_key";--> statement-breakpoint
ALTER TABLE "ledger_entries" RENAME TO "old_ledger_entries";--> statement-breakpoint
ALTER TABLE "old_ledger_entries" DROP CONSTRAINT "ledger_entries_amount_positive";--> statement-breakpoint
CREATE TABLE "ledger_entries" (
	"number" bigint NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"group_id" bigint,
	"requests" integer,
	"type" "ledger_entry_type" NOT NULL,
	"debit_account" "ledger_account" NOT NULL,
	"credit_account" "ledger_account" NOT NULL,
	"organization_id" uuid NOT NULL,
	"id" uuid NOT NULL,
	"amount" numeric(38, 0) NOT NULL,
	"currency" text NOT NULL,
	"balance_after" numeric(38, 0) NOT NULL,
	"head" "bytea",
	"requests_hash" "bytea",
	"request_id" uuid,
	"reference" text,
	"note" text,
	CONSTRAINT "ledger_entries_amount_positive" CHECK ("ledger_entries"."amount" > 0 and "ledger_entries"."debit_account" <> "ledger_entries"."credit_account")
);
--> statement-breakpoint
INSERT INTO "ledger_entries"
SELECT row_number() OVER (PARTITION BY "organization_id" ORDER BY "seq"), "created_at", NULL,
  CASE WHEN "type" = 'usage' THEN 1 END, "type"::"ledger_entry_type", "debit_account"::"ledger_account",
  "credit_account"::"ledger_account", "organization_id", "id", "amount", "currency", "balance_after", NULL, NULL,
  "request_id", "reference", "note"
FROM "old_ledger_entries";
--> statement-breakpoint
DROP TABLE "old_ledger_entries";--> statement-breakpoint
ALTER TABLE "wallets" ADD COLUMN "entries" bigint NOT NULL DEFAULT 0, ADD COLUMN "head" "bytea";--> statement-breakpoint
-- What is below zero is made good by an entry that says so, so that the sum still proves the balance.
INSERT INTO "ledger_entries"
SELECT coalesce((SELECT max(e."number") FROM "ledger_entries" e WHERE e."organization_id" = w."organization_id"), 0) + 1,
  now(), NULL, NULL, 'adjustment', 'adjustments', 'wallet', w."organization_id", gen_random_uuid(), -w."balance",
  w."currency", 0, NULL, NULL, NULL, NULL, 'Written off: the balance was below zero'
FROM "wallets" w WHERE w."balance" < 0;
--> statement-breakpoint
UPDATE "wallets" w SET "balance" = greatest(w."balance", 0), "entries" = coalesce(s."entries", 0),
  "head" = sha256(convert_to(w."organization_id" || E'\n' || coalesce(s."entries", 0) || E'\n' || coalesce(s."total", 0) || E'\n', 'UTF8'))
FROM "wallets" v LEFT JOIN (
  SELECT "organization_id", count(*) AS "entries",
    sum(CASE WHEN "credit_account" = 'wallet' THEN "amount" ELSE -"amount" END) AS "total"
  FROM "ledger_entries" GROUP BY "organization_id"
) s USING ("organization_id")
WHERE v."organization_id" = w."organization_id" AND v."currency" = w."currency";
--> statement-breakpoint
ALTER TABLE "wallets" ALTER COLUMN "entries" DROP DEFAULT, ALTER COLUMN "head" SET NOT NULL,
  ADD CONSTRAINT "wallets_balance_not_negative" CHECK ("wallets"."balance" >= 0);
--> statement-breakpoint
ALTER TABLE "ledger_entries" ADD CONSTRAINT "ledger_entries_organization_id_number_pk" PRIMARY KEY("organization_id","number");--> statement-breakpoint
CREATE UNIQUE INDEX "ledger_entries_reference_key" ON "ledger_entries" USING btree ("organization_id","reference") WHERE "ledger_entries"."reference" is not null;--> statement-breakpoint
CREATE TRIGGER "ledger_entries_append_only" BEFORE UPDATE OR DELETE ON "ledger_entries" FOR EACH ROW EXECUTE FUNCTION "refuse_change"();
