CREATE TABLE "rejected_requests" (
	"id" uuid PRIMARY KEY NOT NULL,
	"organization_id" uuid NOT NULL,
	"key_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"model" text NOT NULL,
	"endpoint" text NOT NULL,
	"status" smallint NOT NULL,
	"code" text NOT NULL,
	"param" text,
	"message" text NOT NULL,
	"client_request_id" text
);
--> statement-breakpoint
CREATE INDEX "rejected_requests_organization_idx" ON "rejected_requests" USING btree ("organization_id","id");