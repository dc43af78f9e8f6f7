CREATE TABLE "stack_packages" (
	"sha256" text PRIMARY KEY NOT NULL,
	"bytes" "bytea" NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "stack_versions" (
	"id" uuid PRIMARY KEY NOT NULL,
	"stack_id" uuid NOT NULL,
	"number" integer NOT NULL,
	"sha256" text NOT NULL,
	"size_bytes" integer NOT NULL,
	"metadata" jsonb NOT NULL,
	"pins" integer DEFAULT 0 NOT NULL,
	"created_by_user_id" uuid,
	"created_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "stack_versions_pins" CHECK ("stack_versions"."pins" >= 0)
);
--> statement-breakpoint
CREATE TABLE "stacks" (
	"id" uuid PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"visibility" text NOT NULL,
	"is_builtin" boolean DEFAULT false NOT NULL,
	"owner_user_id" uuid,
	"title" text NOT NULL,
	"description" text NOT NULL,
	"category" text,
	"icon" text,
	"current_version_id" uuid NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL,
	"deleted_at" timestamp (3) with time zone,
	CONSTRAINT "stacks_owned" CHECK ("stacks"."is_builtin" or "stacks"."owner_user_id" is not null)
);
--> statement-breakpoint
ALTER TABLE "stack_versions" ADD CONSTRAINT "stack_versions_stack_id_stacks_id_fk" FOREIGN KEY ("stack_id") REFERENCES "public"."stacks"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "stack_versions" ADD CONSTRAINT "stack_versions_sha256_stack_packages_sha256_fk" FOREIGN KEY ("sha256") REFERENCES "public"."stack_packages"("sha256") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "stack_versions_number_key" ON "stack_versions" USING btree ("stack_id","number");--> statement-breakpoint
CREATE INDEX "stack_versions_sha256_idx" ON "stack_versions" USING btree ("sha256");--> statement-breakpoint
CREATE UNIQUE INDEX "stacks_global_name_key" ON "stacks" USING btree ("name") WHERE "stacks"."visibility" = 'global' and "stacks"."deleted_at" is null;--> statement-breakpoint
CREATE UNIQUE INDEX "stacks_private_name_key" ON "stacks" USING btree ("owner_user_id","name") WHERE "stacks"."visibility" = 'private' and "stacks"."deleted_at" is null;