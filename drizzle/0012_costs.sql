CREATE TABLE "billing_currencies" (
	"organization_id" uuid PRIMARY KEY NOT NULL,
	"currency" text NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "cluster_moves" (
	"cluster_id" text NOT NULL,
	"moved_ms" bigint NOT NULL,
	"from_organization_id" uuid NOT NULL,
	"from_organization_name" text NOT NULL,
	"to_organization_id" uuid NOT NULL,
	"to_organization_name" text NOT NULL,
	CONSTRAINT "cluster_moves_cluster_id_moved_ms_pk" PRIMARY KEY("cluster_id","moved_ms")
);
--> statement-breakpoint
CREATE TABLE "conversion_rates" (
	"id" uuid PRIMARY KEY NOT NULL,
	"from_currency" text NOT NULL,
	"to_currency" text NOT NULL,
	"rate" numeric(20, 10) NOT NULL,
	"effective_from" timestamp (3) with time zone NOT NULL,
	"effective_to" timestamp (3) with time zone,
	"created_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "conversion_rates_positive" CHECK ("conversion_rates"."rate" > 0 and "conversion_rates"."from_currency" <> "conversion_rates"."to_currency")
);
--> statement-breakpoint
CREATE TABLE "rate_cards" (
	"id" uuid PRIMARY KEY NOT NULL,
	"hardware_profile" text NOT NULL,
	"currency" text NOT NULL,
	"node_hour" numeric(20, 10),
	"gpu_hour" numeric(20, 10),
	"effective_from" timestamp (3) with time zone NOT NULL,
	"effective_to" timestamp (3) with time zone,
	"created_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "rate_cards_priced" CHECK ("rate_cards"."node_hour" is not null or "rate_cards"."gpu_hour" is not null),
	CONSTRAINT "rate_cards_not_negative" CHECK ("rate_cards"."node_hour" >= 0 and "rate_cards"."gpu_hour" >= 0)
);
--> statement-breakpoint
CREATE TABLE "usage_allocations" (
	"source" text NOT NULL,
	"node_id" text NOT NULL,
	"generation" integer NOT NULL,
	"cluster_id" text NOT NULL,
	"cluster_name" text,
	"organization_id" uuid,
	"organization_name" text,
	"node_name" text,
	"hardware_profile" text,
	"gpus" integer,
	"allocated_ms" bigint,
	"ready_ms" bigint,
	"released_ms" bigint,
	"release_estimated" boolean DEFAULT false NOT NULL,
	CONSTRAINT "usage_allocations_source_node_id_generation_pk" PRIMARY KEY("source","node_id","generation"),
	CONSTRAINT "usage_allocations_complete" CHECK ("usage_allocations"."allocated_ms" is null or ("usage_allocations"."cluster_name" is not null and "usage_allocations"."organization_id" is not null
        and "usage_allocations"."organization_name" is not null and "usage_allocations"."node_name" is not null
        and "usage_allocations"."hardware_profile" is not null and "usage_allocations"."gpus" is not null)),
	CONSTRAINT "usage_allocations_gpus" CHECK ("usage_allocations"."gpus" between 0 and 100000)
);
--> statement-breakpoint
CREATE TABLE "usage_intervals" (
	"source" text NOT NULL,
	"node_id" text NOT NULL,
	"generation" integer NOT NULL,
	"part" smallint NOT NULL,
	"snapshot_id" integer NOT NULL,
	"nodes" smallint NOT NULL,
	"gpus" integer NOT NULL,
	"started_ms" bigint NOT NULL,
	"ready_ms" bigint,
	"ended_ms" bigint,
	"estimated" boolean NOT NULL,
	CONSTRAINT "usage_intervals_source_node_id_generation_part_pk" PRIMARY KEY("source","node_id","generation","part"),
	CONSTRAINT "usage_intervals_positive" CHECK ("usage_intervals"."ended_ms" is null or "usage_intervals"."ended_ms" > "usage_intervals"."started_ms")
);
--> statement-breakpoint
CREATE TABLE "usage_snapshots" (
	"id" integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "usage_snapshots_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"source" text NOT NULL,
	"organization_id" uuid NOT NULL,
	"organization_name" text NOT NULL,
	"cluster_id" text NOT NULL,
	"cluster_name" text NOT NULL,
	"hardware_profile" text NOT NULL,
	CONSTRAINT "usage_snapshots_key" UNIQUE("organization_id","cluster_id","source","hardware_profile","cluster_name","organization_name")
);
--> statement-breakpoint
ALTER TABLE "usage_intervals" ADD CONSTRAINT "usage_intervals_snapshot_id_usage_snapshots_id_fk" FOREIGN KEY ("snapshot_id") REFERENCES "public"."usage_snapshots"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "conversion_rates_series_idx" ON "conversion_rates" USING btree ("from_currency","to_currency","effective_from");--> statement-breakpoint
CREATE INDEX "rate_cards_series_idx" ON "rate_cards" USING btree ("hardware_profile","currency","effective_from");--> statement-breakpoint
CREATE INDEX "usage_allocations_cluster_idx" ON "usage_allocations" USING btree ("source","cluster_id","released_ms");--> statement-breakpoint
CREATE INDEX "usage_allocations_open_idx" ON "usage_allocations" USING btree ("source","node_id","generation") WHERE "usage_allocations"."released_ms" is null;--> statement-breakpoint
CREATE INDEX "usage_intervals_snapshot_idx" ON "usage_intervals" USING btree ("snapshot_id","ended_ms");--> statement-breakpoint
CREATE INDEX "usage_intervals_ended_idx" ON "usage_intervals" USING btree ("ended_ms");--> statement-breakpoint
-- A range of texts that holds one text alone stands for "is equal" in an exclusion constraint. The extension btree_gist
-- would do the same, but an ordinary user of a database may not be allowed to create extensions; this needs no more
-- rights than the tables.
CREATE TYPE "headgate_text_range" AS RANGE (SUBTYPE = text, COLLATION = "C");
--> statement-breakpoint
-- The hash comes first because GiST keeps numbers apart quickly, and texts that begin alike, as ids do, slowly.
ALTER TABLE "usage_intervals" ADD CONSTRAINT "usage_intervals_no_overlap" EXCLUDE USING gist (
	int8range(hashtextextended("source" || ' ' || "node_id", 0), hashtextextended("source" || ' ' || "node_id", 0), '[]') WITH &&,
	"headgate_text_range"("source" || ' ' || "node_id", "source" || ' ' || "node_id", '[]') WITH &&,
	int8range("started_ms", "ended_ms") WITH &&
);
--> statement-breakpoint
ALTER TABLE "rate_cards" ADD CONSTRAINT "rate_cards_no_overlap" EXCLUDE USING gist (
	"headgate_text_range"("hardware_profile", "hardware_profile", '[]') WITH &&,
	"headgate_text_range"("currency", "currency", '[]') WITH &&,
	tstzrange("effective_from", "effective_to") WITH &&
);
--> statement-breakpoint
ALTER TABLE "conversion_rates" ADD CONSTRAINT "conversion_rates_no_overlap" EXCLUDE USING gist (
	"headgate_text_range"("from_currency", "from_currency", '[]') WITH &&,
	"headgate_text_range"("to_currency", "to_currency", '[]') WITH &&,
	tstzrange("effective_from", "effective_to") WITH &&
);
--> statement-breakpoint
CREATE FUNCTION "refuse_edit_of_dated"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' OR to_jsonb(NEW) - 'effective_to' <> to_jsonb(OLD) - 'effective_to'
    OR NEW.effective_to IS NULL OR NEW.effective_to >= OLD.effective_to THEN
    RAISE EXCEPTION '% is never edited, only ended', TG_TABLE_NAME;
  END IF;
  RETURN NEW;
END
$$;
--> statement-breakpoint
CREATE TRIGGER "rate_cards_only_ended" BEFORE UPDATE OR DELETE ON "rate_cards" FOR EACH ROW EXECUTE FUNCTION "refuse_edit_of_dated"();
--> statement-breakpoint
CREATE TRIGGER "conversion_rates_only_ended" BEFORE UPDATE OR DELETE ON "conversion_rates" FOR EACH ROW EXECUTE FUNCTION "refuse_edit_of_dated"();
