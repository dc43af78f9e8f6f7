ALTER TABLE "usage_allocations" ADD COLUMN "gpu_share" smallint DEFAULT 28 NOT NULL;--> statement-breakpoint
ALTER TABLE "usage_intervals" ADD COLUMN "gpu_share" smallint DEFAULT 28 NOT NULL;--> statement-breakpoint
ALTER TABLE "replica_runs" ADD COLUMN "gpu_share" smallint DEFAULT 28 NOT NULL;