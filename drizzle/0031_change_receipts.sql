CREATE TABLE "change_receipts" (
	"caller_id" text NOT NULL,
	"key_hash" "bytea" NOT NULL,
	"request_hash" "bytea" NOT NULL,
	"request_id" uuid NOT NULL,
	"target_id" text NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	CONSTRAINT "change_receipts_caller_id_key_hash_pk" PRIMARY KEY("caller_id","key_hash")
);
--> statement-breakpoint
CREATE INDEX "change_receipts_expiry_idx" ON "change_receipts" USING btree ("expires_at");