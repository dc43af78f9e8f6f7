ALTER TABLE "organizations" ADD COLUMN "status" text DEFAULT 'active' NOT NULL;--> statement-breakpoint
ALTER TABLE "organizations" ADD COLUMN "platform" boolean DEFAULT false NOT NULL;--> statement-breakpoint
UPDATE "organizations" SET "platform" = true WHERE "id" = (SELECT "id" FROM "organizations" ORDER BY "created_at", "id" LIMIT 1);--> statement-breakpoint
ALTER TABLE "organizations" ADD COLUMN "closed_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "organizations" ADD COLUMN "default_limits" jsonb DEFAULT '{}'::jsonb NOT NULL;--> statement-breakpoint
ALTER TABLE "organizations" ADD COLUMN "max_active_keys" integer;--> statement-breakpoint
ALTER TABLE "organizations" ADD COLUMN "models" jsonb;--> statement-breakpoint
ALTER TABLE "api_keys" ADD COLUMN "models" jsonb;--> statement-breakpoint
CREATE INDEX "audit_log_action_idx" ON "audit_log" USING btree ("organization_id","action","id");--> statement-breakpoint
CREATE INDEX "audit_log_target_idx" ON "audit_log" USING btree ("organization_id","target_id","id");