CREATE TABLE "response_keys" (
	"id" uuid PRIMARY KEY NOT NULL,
	"platform_key_id" text NOT NULL,
	"sealed" "bytea" NOT NULL
);
--> statement-breakpoint
CREATE TABLE "stored_response_items" (
	"organization_id" uuid NOT NULL,
	"item_id" text NOT NULL,
	"response_id" uuid NOT NULL,
	CONSTRAINT "stored_response_items_organization_id_item_id_response_id_pk" PRIMARY KEY("organization_id","item_id","response_id")
);
--> statement-breakpoint
CREATE TABLE "stored_responses" (
	"id" uuid PRIMARY KEY NOT NULL,
	"organization_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"previous_id" uuid,
	"expires_at" timestamp with time zone NOT NULL,
	"data_key_id" uuid NOT NULL,
	"bytes" integer NOT NULL,
	"input" "bytea" NOT NULL,
	"response" "bytea" NOT NULL
);
--> statement-breakpoint
ALTER TABLE "stored_response_items" ADD CONSTRAINT "stored_response_items_response_id_stored_responses_id_fk" FOREIGN KEY ("response_id") REFERENCES "public"."stored_responses"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "stored_response_items_response_idx" ON "stored_response_items" USING btree ("response_id");--> statement-breakpoint
CREATE INDEX "stored_responses_expiry_idx" ON "stored_responses" USING btree ("expires_at");