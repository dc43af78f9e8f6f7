ALTER TABLE "runs" ADD COLUMN "check_drift" boolean DEFAULT true NOT NULL;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "drift_of" uuid;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "drift_tried_at" timestamp (3) with time zone;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "drift_notified" boolean DEFAULT false NOT NULL;--> statement-breakpoint
CREATE INDEX "runs_drift_idx" ON "runs" USING btree ("drift_of","id") WHERE "runs"."drift_of" is not null;--> statement-breakpoint
CREATE INDEX "runs_drift_due_idx" ON "runs" USING btree ("id") WHERE "runs"."status" = 'APPLIED' and "runs"."check_drift";