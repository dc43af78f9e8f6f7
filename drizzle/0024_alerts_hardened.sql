ALTER TABLE "api_keys" ADD COLUMN "expiry_told_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "api_key_former_secrets" ADD COLUMN "revoked_at" timestamp with time zone;--> statement-breakpoint
CREATE INDEX "budget_alerts_pending_idx" ON "budget_alerts" USING btree ("budget_id","period_start") WHERE "budget_alerts"."raised_at" is null;--> statement-breakpoint
CREATE INDEX "api_keys_expiring_idx" ON "api_keys" USING btree ("expires_at") WHERE "api_keys"."revoked_at" is null and "api_keys"."expires_at" is distinct from "api_keys"."expiry_told_at";