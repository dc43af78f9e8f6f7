ALTER TABLE "projects" ADD COLUMN "imported_from" text;--> statement-breakpoint
ALTER TABLE "api_keys" ADD COLUMN "imported_hash" "bytea";--> statement-breakpoint
CREATE UNIQUE INDEX "projects_imported_from_key" ON "projects" USING btree ("organization_id","imported_from");--> statement-breakpoint
CREATE UNIQUE INDEX "api_keys_imported_hash_key" ON "api_keys" USING btree ("imported_hash");