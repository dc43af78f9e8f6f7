CREATE TABLE "budget_alerts" (
	"budget_id" uuid NOT NULL,
	"period_start" date NOT NULL,
	"end_user" text NOT NULL,
	"percent" smallint NOT NULL,
	"raised_at" timestamp with time zone,
	CONSTRAINT "budget_alerts_budget_id_period_start_end_user_percent_pk" PRIMARY KEY("budget_id","period_start","end_user","percent")
);
--> statement-breakpoint
CREATE TABLE "budgets" (
	"id" uuid PRIMARY KEY NOT NULL,
	"organization_id" uuid NOT NULL,
	"scope_type" text NOT NULL,
	"scope_id" text NOT NULL,
	"period" text NOT NULL,
	"mode" text NOT NULL,
	"amount" numeric(38, 0) NOT NULL,
	"alert_percents" smallint[] NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"updated_at" timestamp with time zone NOT NULL,
	CONSTRAINT "budgets_amount_positive" CHECK ("budgets"."amount" > 0)
);
--> statement-breakpoint
CREATE TABLE "usage_users" (
	"organization" integer NOT NULL,
	"day" date NOT NULL,
	"end_user" text NOT NULL,
	"cost" numeric(38, 0) NOT NULL,
	CONSTRAINT "usage_users_organization_end_user_day_pk" PRIMARY KEY("organization","end_user","day")
);
--> statement-breakpoint
CREATE UNIQUE INDEX "budgets_scope_key" ON "budgets" USING btree ("organization_id","scope_type","scope_id","period","mode");--> statement-breakpoint
CREATE INDEX "budgets_organization_idx" ON "budgets" USING btree ("organization_id","id");