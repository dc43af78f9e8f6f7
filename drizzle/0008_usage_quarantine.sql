CREATE TABLE "usage_quarantine" (
	"id" uuid PRIMARY KEY NOT NULL,
	"organization_id" uuid,
	"record" text NOT NULL,
	"error" text NOT NULL,
	"sql_state" text,
	"created_at" timestamp with time zone NOT NULL
);
