CREATE TABLE "run_plans" (
	"run_id" uuid PRIMARY KEY NOT NULL,
	"plan" "bytea",
	"lock_file" "bytea",
	"variables_sha256" text,
	"changes" jsonb NOT NULL
);
--> statement-breakpoint
ALTER TABLE "organizations" ADD COLUMN "members_may_apply" boolean DEFAULT true NOT NULL;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "stack_version" integer;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "shown_inputs" jsonb;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "origin" text;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "mode" text DEFAULT 'auto' NOT NULL;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "planned_at" timestamp (3) with time zone;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "confirmed_at" timestamp (3) with time zone;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "planned" jsonb;--> statement-breakpoint
ALTER TABLE "run_plans" ADD CONSTRAINT "run_plans_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."runs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "run_plans_kept_idx" ON "run_plans" USING btree ("run_id") WHERE "run_plans"."plan" is not null;