ALTER TABLE "organizations" ADD COLUMN "low_balance" numeric(38, 0);--> statement-breakpoint
ALTER TABLE "organizations" ADD COLUMN "low_balance_told_at" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "models" ADD COLUMN "base_id" text;