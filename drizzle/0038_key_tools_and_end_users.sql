ALTER TABLE "api_keys" ADD COLUMN "unserved_tools" text;--> statement-breakpoint
ALTER TABLE "api_keys" ADD COLUMN "end_user_from_header" boolean DEFAULT false NOT NULL;