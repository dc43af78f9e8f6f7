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
ALTER TABLE "clusters" ADD COLUMN "access" text DEFAULT 'public' NOT NULL;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "web_problem" text;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "access" text DEFAULT 'public' NOT NULL;--> statement-breakpoint
ALTER TABLE "exposure_entrances" ADD CONSTRAINT "exposure_entrances_installation_id_exposures_installation_id_fk" FOREIGN KEY ("installation_id") REFERENCES "public"."exposures"("installation_id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "exposure_entrances_installation_idx" ON "exposure_entrances" USING btree ("installation_id");--> statement-breakpoint
CREATE INDEX "exposure_entrances_expiry_idx" ON "exposure_entrances" USING btree ("expires_at");--> statement-breakpoint
CREATE UNIQUE INDEX "exposures_host_key" ON "exposures" USING btree ("domain","label");--> statement-breakpoint
CREATE INDEX "exposures_run_idx" ON "exposures" USING btree ("run_id");--> statement-breakpoint
CREATE INDEX "exposures_probe_idx" ON "exposures" USING btree ("next_probe_at");--> statement-breakpoint
CREATE INDEX "runs_web_idx" ON "runs" USING btree ("id") WHERE "runs"."status" = 'APPLIED' and "runs"."web" is not null;