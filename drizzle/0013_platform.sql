CREATE TABLE "cluster_nodes" (
	"id" uuid PRIMARY KEY NOT NULL,
	"cluster_id" uuid NOT NULL,
	"name" text NOT NULL,
	"address" text NOT NULL,
	"private_address" text,
	"ssh_port" integer NOT NULL,
	"ssh_user" text NOT NULL,
	"host_key" text,
	"hardware_profile" text NOT NULL,
	"gpus" integer NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL,
	"last_seen_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "clusters" (
	"id" uuid PRIMARY KEY NOT NULL,
	"organization_id" uuid NOT NULL,
	"name" text NOT NULL,
	"public_domain" text,
	"created_at" timestamp (3) with time zone NOT NULL,
	"archived_at" timestamp (3) with time zone,
	"access_public_key" text NOT NULL,
	"access_fingerprint" text NOT NULL,
	"access_origin" text NOT NULL,
	"access_changed_at" timestamp (3) with time zone NOT NULL,
	"access_key_id" text,
	"access_sealed" "bytea",
	CONSTRAINT "clusters_access_sealed" CHECK (("clusters"."access_key_id" is null) = ("clusters"."access_sealed" is null))
);
--> statement-breakpoint
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
CREATE TABLE "installations" (
	"id" uuid PRIMARY KEY NOT NULL,
	"cluster_id" uuid NOT NULL,
	"stack_id" uuid NOT NULL,
	"stack_name" text NOT NULL,
	"node" text NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "run_log" (
	"run_id" uuid NOT NULL,
	"seq" integer NOT NULL,
	"at" timestamp (3) with time zone NOT NULL,
	"phase" text NOT NULL,
	"level" text NOT NULL,
	"type" text NOT NULL,
	"message" text NOT NULL,
	CONSTRAINT "run_log_run_id_seq_pk" PRIMARY KEY("run_id","seq")
);
--> statement-breakpoint
CREATE TABLE "runs" (
	"id" uuid PRIMARY KEY NOT NULL,
	"installation_id" uuid NOT NULL,
	"cluster_id" uuid NOT NULL,
	"organization_id" uuid NOT NULL,
	"stack_version_id" uuid NOT NULL,
	"operation" text NOT NULL,
	"status" text NOT NULL,
	"failure_code" text,
	"failure_message" text,
	"inputs" "bytea" NOT NULL,
	"retry_of" uuid,
	"created_by_user" uuid,
	"created_by_key" uuid,
	"created_at" timestamp (3) with time zone NOT NULL,
	"started_at" timestamp (3) with time zone,
	"ended_at" timestamp (3) with time zone,
	"cancel_reason" text,
	"place" text,
	"fence" integer DEFAULT 0 NOT NULL,
	"lease_until" timestamp (3) with time zone,
	"phase" text,
	"phase_started_at" timestamp (3) with time zone,
	"prepared" boolean DEFAULT false NOT NULL,
	"log_offset" bigint DEFAULT 0 NOT NULL,
	"log_lines" integer DEFAULT 0 NOT NULL,
	"log_bytes" integer DEFAULT 0 NOT NULL,
	"changes" jsonb,
	"outputs" jsonb,
	"web" jsonb
);
--> statement-breakpoint
CREATE TABLE "stack_states" (
	"installation_id" uuid NOT NULL,
	"serial" bigint NOT NULL,
	"lineage" text NOT NULL,
	"run_id" uuid NOT NULL,
	"resources" integer NOT NULL,
	"state" "bytea" NOT NULL,
	"lock_file" "bytea",
	"created_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "stack_states_installation_id_serial_pk" PRIMARY KEY("installation_id","serial")
);
--> statement-breakpoint
CREATE TABLE "platform_keys" (
	"id" text PRIMARY KEY NOT NULL,
	"position" integer GENERATED ALWAYS AS IDENTITY (sequence name "platform_keys_position_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "platform_keys_position_unique" UNIQUE("position")
);
--> statement-breakpoint
CREATE TABLE "stack_packages" (
	"sha256" text PRIMARY KEY NOT NULL,
	"bytes" "bytea" NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "stack_versions" (
	"id" uuid PRIMARY KEY NOT NULL,
	"stack_id" uuid NOT NULL,
	"number" integer NOT NULL,
	"sha256" text NOT NULL,
	"size_bytes" integer NOT NULL,
	"metadata" jsonb NOT NULL,
	"pins" integer DEFAULT 0 NOT NULL,
	"created_by_user_id" uuid,
	"created_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "stack_versions_pins" CHECK ("stack_versions"."pins" >= 0)
);
--> statement-breakpoint
CREATE TABLE "stacks" (
	"id" uuid PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"visibility" text NOT NULL,
	"is_builtin" boolean DEFAULT false NOT NULL,
	"owner_user_id" uuid,
	"title" text NOT NULL,
	"description" text NOT NULL,
	"category" text,
	"icon" text,
	"current_version_id" uuid NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL,
	"deleted_at" timestamp (3) with time zone,
	CONSTRAINT "stacks_owned" CHECK ("stacks"."is_builtin" or "stacks"."owner_user_id" is not null)
);
--> statement-breakpoint
ALTER TABLE "cluster_nodes" ADD CONSTRAINT "cluster_nodes_cluster_id_clusters_id_fk" FOREIGN KEY ("cluster_id") REFERENCES "public"."clusters"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "usage_intervals" ADD CONSTRAINT "usage_intervals_snapshot_id_usage_snapshots_id_fk" FOREIGN KEY ("snapshot_id") REFERENCES "public"."usage_snapshots"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "run_log" ADD CONSTRAINT "run_log_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "runs" ADD CONSTRAINT "runs_installation_id_installations_id_fk" FOREIGN KEY ("installation_id") REFERENCES "public"."installations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "stack_states" ADD CONSTRAINT "stack_states_installation_id_installations_id_fk" FOREIGN KEY ("installation_id") REFERENCES "public"."installations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "stack_versions" ADD CONSTRAINT "stack_versions_stack_id_stacks_id_fk" FOREIGN KEY ("stack_id") REFERENCES "public"."stacks"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "stack_versions" ADD CONSTRAINT "stack_versions_sha256_stack_packages_sha256_fk" FOREIGN KEY ("sha256") REFERENCES "public"."stack_packages"("sha256") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "cluster_nodes_cluster_name_key" ON "cluster_nodes" USING btree ("cluster_id","name");--> statement-breakpoint
CREATE UNIQUE INDEX "clusters_organization_name_key" ON "clusters" USING btree ("organization_id","name") WHERE "clusters"."archived_at" is null;--> statement-breakpoint
CREATE UNIQUE INDEX "clusters_domain_name_key" ON "clusters" USING btree ("public_domain","name") WHERE "clusters"."archived_at" is null;--> statement-breakpoint
CREATE INDEX "clusters_organization_idx" ON "clusters" USING btree ("organization_id","id");--> statement-breakpoint
CREATE INDEX "conversion_rates_series_idx" ON "conversion_rates" USING btree ("from_currency","to_currency","effective_from");--> statement-breakpoint
CREATE INDEX "rate_cards_series_idx" ON "rate_cards" USING btree ("hardware_profile","currency","effective_from");--> statement-breakpoint
CREATE INDEX "usage_allocations_cluster_idx" ON "usage_allocations" USING btree ("source","cluster_id","released_ms");--> statement-breakpoint
CREATE INDEX "usage_allocations_open_idx" ON "usage_allocations" USING btree ("source","node_id","generation") WHERE "usage_allocations"."released_ms" is null;--> statement-breakpoint
CREATE INDEX "usage_intervals_snapshot_idx" ON "usage_intervals" USING btree ("snapshot_id","ended_ms");--> statement-breakpoint
CREATE INDEX "usage_intervals_ended_idx" ON "usage_intervals" USING btree ("ended_ms");--> statement-breakpoint
CREATE UNIQUE INDEX "installations_key" ON "installations" USING btree ("cluster_id","stack_id","node");--> statement-breakpoint
CREATE UNIQUE INDEX "runs_active_key" ON "runs" USING btree ("cluster_id") WHERE "runs"."status" in ('PLANNING', 'APPLYING', 'DESTROYING', 'CANCELING');--> statement-breakpoint
CREATE INDEX "runs_pending_idx" ON "runs" USING btree ("cluster_id","id") WHERE "runs"."status" = 'PENDING';--> statement-breakpoint
CREATE INDEX "runs_cluster_idx" ON "runs" USING btree ("cluster_id","id");--> statement-breakpoint
CREATE INDEX "runs_organization_idx" ON "runs" USING btree ("organization_id","id");--> statement-breakpoint
CREATE INDEX "runs_installation_idx" ON "runs" USING btree ("installation_id","id");--> statement-breakpoint
CREATE UNIQUE INDEX "stack_versions_number_key" ON "stack_versions" USING btree ("stack_id","number");--> statement-breakpoint
CREATE INDEX "stack_versions_sha256_idx" ON "stack_versions" USING btree ("sha256");--> statement-breakpoint
CREATE UNIQUE INDEX "stacks_global_name_key" ON "stacks" USING btree ("name") WHERE "stacks"."visibility" = 'global' and "stacks"."deleted_at" is null;--> statement-breakpoint
CREATE UNIQUE INDEX "stacks_private_name_key" ON "stacks" USING btree ("owner_user_id","name") WHERE "stacks"."visibility" = 'private' and "stacks"."deleted_at" is null;--> statement-breakpoint
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
