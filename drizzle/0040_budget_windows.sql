CREATE TABLE "usage_user_models" (
	"organization" integer NOT NULL,
	"model" integer NOT NULL,
	"day" date NOT NULL,
	"end_user" text NOT NULL,
	"cost" numeric(38, 0) NOT NULL,
	CONSTRAINT "usage_user_models_organization_end_user_day_model_pk" PRIMARY KEY("organization","end_user","day","model")
);
--> statement-breakpoint
DROP INDEX IF EXISTS "budgets_scope_key";--> statement-breakpoint
ALTER TABLE "budgets" ADD COLUMN "models" text[] DEFAULT '{}' NOT NULL;--> statement-breakpoint
ALTER TABLE "budgets" ADD COLUMN "models_hash" text DEFAULT '' NOT NULL;--> statement-breakpoint
ALTER TABLE "budgets" ADD COLUMN "raise_amount" numeric(38, 0);--> statement-breakpoint
ALTER TABLE "budgets" ADD COLUMN "raise_until" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "budgets" ADD COLUMN "forgiven" numeric(38, 0);--> statement-breakpoint
ALTER TABLE "budgets" ADD COLUMN "forgiven_from" date;--> statement-breakpoint
CREATE UNIQUE INDEX "budgets_scope_key" ON "budgets" USING btree ("organization_id","scope_type","scope_id","period","mode","models_hash");