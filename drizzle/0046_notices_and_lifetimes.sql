CREATE TABLE "silent_nodes" (
	"node_id" uuid PRIMARY KEY NOT NULL,
	"heard_since" timestamp (3) with time zone
);
--> statement-breakpoint
-- Runs that ended before are not reported.
ALTER TABLE "runs" ADD COLUMN "notified" text DEFAULT 'end';--> statement-breakpoint
ALTER TABLE "runs" ALTER COLUMN "notified" DROP DEFAULT;--> statement-breakpoint
UPDATE "runs" SET "notified" = NULL WHERE "ended_at" IS NULL;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "expires_after" integer;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "expires_at" timestamp (3) with time zone;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "expiry_notified" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "expiry_tried_at" timestamp (3) with time zone;--> statement-breakpoint
ALTER TABLE "silent_nodes" ADD CONSTRAINT "silent_nodes_node_id_cluster_nodes_id_fk" FOREIGN KEY ("node_id") REFERENCES "public"."cluster_nodes"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "runs_unnotified_idx" ON "runs" USING btree ("id") WHERE "runs"."notified" is distinct from 'end';--> statement-breakpoint
CREATE INDEX "runs_expiring_idx" ON "runs" USING btree ("id") WHERE "runs"."status" = 'APPLIED' and ("runs"."expires_after" is not null or "runs"."expires_at" is not null);