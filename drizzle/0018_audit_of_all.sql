CREATE INDEX "audit_log_actions_idx" ON "audit_log" USING btree ("action","id");--> statement-breakpoint
CREATE INDEX "audit_log_targets_idx" ON "audit_log" USING btree ("target_id","id");