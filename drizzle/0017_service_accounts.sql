CREATE TABLE "service_accounts" (
	"id" uuid PRIMARY KEY NOT NULL,
	"organization_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"name" text NOT NULL,
	"created_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "api_keys" ALTER COLUMN "user_id" DROP NOT NULL;--> statement-breakpoint
ALTER TABLE "audit_log" ADD COLUMN "actor_service_account_id" uuid;--> statement-breakpoint
ALTER TABLE "api_keys" ADD COLUMN "service_account_id" uuid;--> statement-breakpoint
ALTER TABLE "service_accounts" ADD CONSTRAINT "service_accounts_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "service_accounts" ADD CONSTRAINT "service_accounts_project_id_projects_id_fk" FOREIGN KEY ("project_id") REFERENCES "public"."projects"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "service_accounts_project_name_key" ON "service_accounts" USING btree ("project_id",lower("name"));--> statement-breakpoint
CREATE INDEX "service_accounts_organization_idx" ON "service_accounts" USING btree ("organization_id","id");--> statement-breakpoint
ALTER TABLE "api_keys" ADD CONSTRAINT "api_keys_acts_for_one" CHECK (("api_keys"."user_id" is null) <> ("api_keys"."service_account_id" is null));--> statement-breakpoint
ALTER TABLE "api_keys" ADD CONSTRAINT "api_keys_service_accounts_infer" CHECK ("api_keys"."service_account_id" is null or "api_keys"."scope" = 'inference');