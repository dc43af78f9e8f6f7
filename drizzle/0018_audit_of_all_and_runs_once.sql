ALTER TABLE "runs" ADD COLUMN "once" text;--> statement-breakpoint
CREATE INDEX "audit_log_actions_idx" ON "audit_log" USING btree ("action","id");--> statement-breakpoint
CREATE INDEX "audit_log_targets_idx" ON "audit_log" USING btree ("target_id","id");--> statement-breakpoint
CREATE UNIQUE INDEX "runs_once_key" ON "runs" USING btree ("cluster_id","once") WHERE "runs"."once" is not null;