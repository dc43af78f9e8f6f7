CREATE TABLE "exposure_entrances" (
	"hash" "bytea" PRIMARY KEY NOT NULL,
	"kind" text NOT NULL,
	"installation_id" uuid NOT NULL,
	"key_id" uuid,
	"user_id" uuid,
	"organization_id" uuid NOT NULL,
	"is_operator" boolean NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "exposures" (
	"installation_id" uuid PRIMARY KEY NOT NULL,
	"run_id" uuid NOT NULL,
	"domain" text NOT NULL,
	"label" text NOT NULL,
	"wanted" text NOT NULL,
	"target" text NOT NULL,
	"status" text NOT NULL,
	"since" timestamp (3) with time zone NOT NULL,
	"next_probe_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "sessions" (
	"id" uuid PRIMARY KEY NOT NULL,
	"token_hash" "bytea" NOT NULL,
	"user_id" uuid NOT NULL,
	"organization_id" uuid NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"last_seen_at" timestamp with time zone NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"ended_at" timestamp with time zone,
	"address" text NOT NULL,
	"user_agent" text NOT NULL
);
--> statement-breakpoint
CREATE TABLE "sign_in_links" (
	"id" uuid PRIMARY KEY NOT NULL,
	"token_hash" "bytea" NOT NULL,
	"user_id" uuid NOT NULL,
	"organization_id" uuid NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"used_at" timestamp with time zone
);
--> statement-breakpoint
DROP INDEX "users_email_key";--> statement-breakpoint
ALTER TABLE "users" ADD COLUMN "email_key" text;--> statement-breakpoint
ALTER TABLE "clusters" ADD COLUMN "access" text DEFAULT 'public' NOT NULL;--> statement-breakpoint
ALTER TABLE "replica_runs" ADD COLUMN "held_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "holder" uuid;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "web_problem" text;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "access" text DEFAULT 'public' NOT NULL;--> statement-breakpoint
ALTER TABLE "exposure_entrances" ADD CONSTRAINT "exposure_entrances_installation_id_exposures_installation_id_fk" FOREIGN KEY ("installation_id") REFERENCES "public"."exposures"("installation_id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "exposure_entrances_installation_idx" ON "exposure_entrances" USING btree ("installation_id");--> statement-breakpoint
CREATE INDEX "exposure_entrances_expiry_idx" ON "exposure_entrances" USING btree ("expires_at");--> statement-breakpoint
CREATE UNIQUE INDEX "exposures_host_key" ON "exposures" USING btree ("domain","label");--> statement-breakpoint
CREATE INDEX "exposures_run_idx" ON "exposures" USING btree ("run_id");--> statement-breakpoint
CREATE INDEX "exposures_probe_idx" ON "exposures" USING btree ("next_probe_at");--> statement-breakpoint
CREATE UNIQUE INDEX "sessions_token_hash_key" ON "sessions" USING btree ("token_hash");--> statement-breakpoint
CREATE INDEX "sessions_user_idx" ON "sessions" USING btree ("user_id","id");--> statement-breakpoint
CREATE INDEX "sessions_expires_idx" ON "sessions" USING btree ("expires_at");--> statement-breakpoint
CREATE UNIQUE INDEX "sign_in_links_token_hash_key" ON "sign_in_links" USING btree ("token_hash");--> statement-breakpoint
CREATE UNIQUE INDEX "users_email_key_unique" ON "users" USING btree ("email_key");--> statement-breakpoint
CREATE INDEX "runs_inputs_key_idx" ON "runs" USING btree (substr("inputs", 1, 17));--> statement-breakpoint
CREATE INDEX "runs_web_idx" ON "runs" USING btree ("id") WHERE "runs"."status" = 'APPLIED' and "runs"."web" is not null;--> statement-breakpoint
CREATE INDEX "stack_states_key_idx" ON "stack_states" USING btree (substr("state", 1, 17));--> statement-breakpoint
-- by hand
UPDATE "users" SET "email_key" = lower(normalize("email", NFKC));--> statement-breakpoint
ALTER TABLE "users" ALTER COLUMN "email_key" SET NOT NULL;
