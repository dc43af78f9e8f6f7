CREATE TABLE "batch_lines" (
	"batch_id" uuid NOT NULL,
	"number" integer NOT NULL,
	"custom_id" text NOT NULL,
	"body_at" bigint NOT NULL,
	"body_bytes" integer NOT NULL,
	"state" text NOT NULL,
	"request_id" text,
	"status_code" integer,
	"answer" "bytea",
	CONSTRAINT "batch_lines_batch_id_number_pk" PRIMARY KEY("batch_id","number")
);
--> statement-breakpoint
CREATE TABLE "batches" (
	"id" uuid PRIMARY KEY NOT NULL,
	"organization_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"key_id" uuid NOT NULL,
	"endpoint" text NOT NULL,
	"input_file_id" uuid NOT NULL,
	"model" text,
	"metadata" jsonb,
	"output_keep_seconds" integer,
	"status" text NOT NULL,
	"ending" text,
	"errors" jsonb NOT NULL,
	"waiting_for" text,
	"total" integer DEFAULT 0 NOT NULL,
	"completed" integer DEFAULT 0 NOT NULL,
	"failed" integer DEFAULT 0 NOT NULL,
	"output_file_id" uuid,
	"error_file_id" uuid,
	"created_at" timestamp with time zone NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"in_progress_at" timestamp with time zone,
	"finalizing_at" timestamp with time zone,
	"completed_at" timestamp with time zone,
	"failed_at" timestamp with time zone,
	"expired_at" timestamp with time zone,
	"cancelling_at" timestamp with time zone,
	"cancelled_at" timestamp with time zone,
	"gateway_id" uuid,
	"lease_until" timestamp with time zone NOT NULL,
	"fence" bigint DEFAULT 0 NOT NULL,
	"turn_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "file_chunks" (
	"file_id" uuid NOT NULL,
	"number" integer NOT NULL,
	"bytes" "bytea" NOT NULL,
	CONSTRAINT "file_chunks_file_id_number_pk" PRIMARY KEY("file_id","number")
);
--> statement-breakpoint
CREATE TABLE "files" (
	"id" uuid PRIMARY KEY NOT NULL,
	"organization_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"key_id" uuid,
	"purpose" text NOT NULL,
	"filename" text NOT NULL,
	"bytes" bigint NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"written_until" timestamp with time zone,
	"held_until" timestamp with time zone
);
--> statement-breakpoint
CREATE INDEX "batches_organization_idx" ON "batches" USING btree ("organization_id","id");--> statement-breakpoint
CREATE INDEX "batches_turn_idx" ON "batches" USING btree ("status","turn_at");--> statement-breakpoint
CREATE INDEX "files_organization_idx" ON "files" USING btree ("organization_id","id");--> statement-breakpoint
CREATE INDEX "files_expiry_idx" ON "files" USING btree ("expires_at");--> statement-breakpoint
ALTER TABLE "file_chunks" ALTER COLUMN "bytes" SET STORAGE EXTERNAL;--> statement-breakpoint
ALTER TABLE "batch_lines" ALTER COLUMN "answer" SET STORAGE EXTERNAL;
