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
ALTER TABLE "run_log" ADD CONSTRAINT "run_log_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "runs" ADD CONSTRAINT "runs_installation_id_installations_id_fk" FOREIGN KEY ("installation_id") REFERENCES "public"."installations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "stack_states" ADD CONSTRAINT "stack_states_installation_id_installations_id_fk" FOREIGN KEY ("installation_id") REFERENCES "public"."installations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "installations_key" ON "installations" USING btree ("cluster_id","stack_id","node");--> statement-breakpoint
CREATE UNIQUE INDEX "runs_active_key" ON "runs" USING btree ("cluster_id") WHERE "runs"."status" in ('PLANNING', 'APPLYING', 'DESTROYING', 'CANCELING');--> statement-breakpoint
CREATE INDEX "runs_pending_idx" ON "runs" USING btree ("cluster_id","id") WHERE "runs"."status" = 'PENDING';--> statement-breakpoint
CREATE INDEX "runs_cluster_idx" ON "runs" USING btree ("cluster_id","id");--> statement-breakpoint
CREATE INDEX "runs_organization_idx" ON "runs" USING btree ("organization_id","id");--> statement-breakpoint
CREATE INDEX "runs_installation_idx" ON "runs" USING btree ("installation_id","id");