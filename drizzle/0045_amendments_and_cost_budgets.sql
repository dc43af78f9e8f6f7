CREATE TABLE "cost_budgets" (
	"organization_id" uuid PRIMARY KEY NOT NULL,
	"amount" numeric(20, 10) NOT NULL,
	"currency" text NOT NULL,
	"alert_percents" integer[] NOT NULL,
	"alerted_month" text,
	"alerted_percent" integer,
	"updated_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "cost_budgets_positive" CHECK ("cost_budgets"."amount" > 0)
);
--> statement-breakpoint
CREATE TABLE "allocation_amendments" (
	"id" uuid PRIMARY KEY NOT NULL,
	"node_id" text NOT NULL,
	"generation" integer NOT NULL,
	"kind" text NOT NULL,
	"reason" text NOT NULL,
	"amended_ms" bigint NOT NULL,
	"allocated_ms_before" bigint,
	"released_ms_before" bigint,
	"estimated_before" boolean NOT NULL,
	"allocated_ms_after" bigint,
	"released_ms_after" bigint,
	"estimated_after" boolean NOT NULL
);
--> statement-breakpoint
ALTER TABLE "usage_allocations" ADD COLUMN "voided" boolean DEFAULT false NOT NULL;--> statement-breakpoint
CREATE INDEX "allocation_amendments_allocation_idx" ON "allocation_amendments" USING btree ("node_id","generation","id");