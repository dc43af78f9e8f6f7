CREATE TABLE "database_changes" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "database_changes_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"gateway_id" uuid NOT NULL,
	"change" text NOT NULL,
	"known_at" timestamp with time zone NOT NULL,
	"noticed_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "gateway_runs" ADD COLUMN "beats" bigint DEFAULT 0 NOT NULL;