CREATE TABLE "project_rate_limits" (
	"id" uuid PRIMARY KEY NOT NULL,
	"organization_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"model" text NOT NULL,
	"requests_per_minute" integer,
	"tokens_per_minute" bigint,
	"requests_per_day" integer,
	"created_at" timestamp with time zone NOT NULL,
	"updated_at" timestamp with time zone NOT NULL,
	CONSTRAINT "project_rate_limits_limit_something" CHECK (coalesce("project_rate_limits"."requests_per_minute", "project_rate_limits"."tokens_per_minute", "project_rate_limits"."requests_per_day") is not null)
);
--> statement-breakpoint
CREATE UNIQUE INDEX "project_rate_limits_model_key" ON "project_rate_limits" USING btree ("organization_id","project_id","model");