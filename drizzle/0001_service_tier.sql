DROP INDEX "price_versions_model_idx";--> statement-breakpoint
ALTER TABLE "price_versions" ADD COLUMN "tier" text DEFAULT 'default' NOT NULL;--> statement-breakpoint
ALTER TABLE "usage_records" ADD COLUMN "service_tier" text DEFAULT 'default' NOT NULL;--> statement-breakpoint
CREATE INDEX "price_versions_model_idx" ON "price_versions" USING btree ("model_id","tier","effective_from");