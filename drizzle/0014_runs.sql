ALTER TABLE "replica_runs" ADD COLUMN "held_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "runs" ADD COLUMN "holder" uuid;--> statement-breakpoint
CREATE INDEX "runs_inputs_key_idx" ON "runs" USING btree (substr("inputs", 1, 17));--> statement-breakpoint
CREATE INDEX "stack_states_key_idx" ON "stack_states" USING btree (substr("state", 1, 17));