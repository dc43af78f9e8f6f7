CREATE TABLE "idempotency_keys" (
	"key_id" uuid NOT NULL,
	"idempotency_key" text NOT NULL,
	"body_hash" "bytea" NOT NULL,
	"request_id" uuid NOT NULL,
	"gateway_id" uuid NOT NULL,
	"state" text NOT NULL,
	"lease_until" timestamp with time zone NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"answer" "bytea",
	CONSTRAINT "idempotency_keys_key_id_idempotency_key_pk" PRIMARY KEY("key_id","idempotency_key")
);
--> statement-breakpoint
CREATE TABLE "request_contents" (
	"request_id" uuid PRIMARY KEY NOT NULL,
	"organization_id" uuid NOT NULL,
	"key_id" uuid NOT NULL,
	"request" "bytea" NOT NULL,
	"response" "bytea" NOT NULL,
	"request_truncated" boolean NOT NULL,
	"response_truncated" boolean NOT NULL
);
--> statement-breakpoint
CREATE INDEX "idempotency_keys_expiry_idx" ON "idempotency_keys" USING btree ("expires_at");