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
ALTER TABLE "run_log" ADD CONSTRAINT "run_log_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "runs" ADD CONSTRAINT "runs_installation_id_installations_id_fk" FOREIGN KEY ("installation_id") REFERENCES "public"."installations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "stack_states" ADD CONSTRAINT "stack_states_installation_id_installations_id_fk" FOREIGN KEY ("installation_id") REFERENCES "public"."installations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "stack_versions" ADD CONSTRAINT "stack_versions_stack_id_stacks_id_fk" FOREIGN KEY ("stack_id") REFERENCES "public"."stacks"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "stack_versions" ADD CONSTRAINT "stack_versions_sha256_stack_packages_sha256_fk" FOREIGN KEY ("sha256") REFERENCES "public"."stack_packages"("sha256") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "cluster_nodes_cluster_name_key" ON "cluster_nodes" USING btree ("cluster_id","name");--> statement-breakpoint
CREATE UNIQUE INDEX "clusters_organization_name_key" ON "clusters" USING btree ("organization_id","name") WHERE "clusters"."archived_at" is null;--> statement-breakpoint
CREATE UNIQUE INDEX "clusters_domain_name_key" ON "clusters" USING btree ("public_domain","name") WHERE "clusters"."archived_at" is null;--> statement-breakpoint
CREATE INDEX "clusters_organization_idx" ON "clusters" USING btree ("organization_id","id");--> statement-breakpoint
CREATE UNIQUE INDEX "installations_key" ON "installations" USING btree ("cluster_id","stack_id","node");--> statement-breakpoint
CREATE UNIQUE INDEX "runs_active_key" ON "runs" USING btree ("cluster_id") WHERE "runs"."status" in ('PLANNING', 'APPLYING', 'DESTROYING', 'CANCELING');--> statement-breakpoint
CREATE INDEX "runs_pending_idx" ON "runs" USING btree ("cluster_id","id") WHERE "runs"."status" = 'PENDING';--> statement-breakpoint
CREATE INDEX "runs_cluster_idx" ON "runs" USING btree ("cluster_id","id");--> statement-breakpoint
CREATE INDEX "runs_organization_idx" ON "runs" USING btree ("organization_id","id");--> statement-breakpoint
CREATE INDEX "runs_installation_idx" ON "runs" USING btree ("installation_id","id");--> statement-breakpoint
CREATE UNIQUE INDEX "stack_versions_number_key" ON "stack_versions" USING btree ("stack_id","number");--> statement-breakpoint
CREATE INDEX "stack_versions_sha256_idx" ON "stack_versions" USING btree ("sha256");--> statement-breakpoint
CREATE UNIQUE INDEX "stacks_global_name_key" ON "stacks" USING btree ("name") WHERE "stacks"."visibility" = 'global' and "stacks"."deleted_at" is null;--> statement-breakpoint
CREATE UNIQUE INDEX "stacks_private_name_key" ON "stacks" USING btree ("owner_user_id","name") WHERE "stacks"."visibility" = 'private' and "stacks"."deleted_at" is null;