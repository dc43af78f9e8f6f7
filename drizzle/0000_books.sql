CREATE TABLE "memberships" (
	"organization_id" uuid NOT NULL,
	"user_id" uuid NOT NULL,
	"role" text NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	CONSTRAINT "memberships_organization_id_user_id_pk" PRIMARY KEY("organization_id","user_id")
);
--> statement-breakpoint
CREATE TABLE "organizations" (
	"id" uuid PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"created_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "projects" (
	"id" uuid PRIMARY KEY NOT NULL,
	"organization_id" uuid NOT NULL,
	"name" text NOT NULL,
	"description" text DEFAULT '' NOT NULL,
	"visibility" text NOT NULL,
	"archived" boolean DEFAULT false NOT NULL,
	"created_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "users" (
	"id" uuid PRIMARY KEY NOT NULL,
	"email" text NOT NULL,
	"name" text NOT NULL,
	"password_hash" text,
	"platform_role" text NOT NULL,
	"created_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "audit_log" (
	"id" uuid PRIMARY KEY NOT NULL,
	"organization_id" uuid NOT NULL,
	"actor_user_id" uuid,
	"actor_key_id" uuid,
	"action" text NOT NULL,
	"target_type" text NOT NULL,
	"target_id" text NOT NULL,
	"before" jsonb,
	"after" jsonb,
	"request_id" uuid
);
--> statement-breakpoint
CREATE TABLE "models" (
	"id" text PRIMARY KEY NOT NULL,
	"first_seen_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "price_versions" (
	"id" uuid PRIMARY KEY NOT NULL,
	"model_id" text NOT NULL,
	"input_per_mtok_micro_usd" bigint NOT NULL,
	"cached_input_per_mtok_micro_usd" bigint NOT NULL,
	"output_per_mtok_micro_usd" bigint NOT NULL,
	"currency" text NOT NULL,
	"effective_from" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "api_keys" (
	"id" uuid PRIMARY KEY NOT NULL,
	"organization_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"user_id" uuid NOT NULL,
	"name" text NOT NULL,
	"prefix" text NOT NULL,
	"last4" text NOT NULL,
	"secret_hash" "bytea" NOT NULL,
	"imported" boolean DEFAULT false NOT NULL,
	"scope" text NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"expires_at" timestamp with time zone,
	"last_used_at" timestamp with time zone,
	"revoked_at" timestamp with time zone,
	"requests_per_minute" integer,
	"max_concurrency" integer,
	"tokens_per_minute" bigint,
	"monthly_token_limit" bigint,
	"store_requests" boolean DEFAULT false NOT NULL,
	"cache_responses" boolean DEFAULT false NOT NULL
);
--> statement-breakpoint
CREATE TABLE "usage_hourly" (
	"organization_id" uuid NOT NULL,
	"hour" timestamp with time zone NOT NULL,
	"key_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"model" text NOT NULL,
	"requests" bigint NOT NULL,
	"completed" bigint NOT NULL,
	"aborted" bigint NOT NULL,
	"ended" bigint NOT NULL,
	"failed" bigint NOT NULL,
	"cache_hits" bigint NOT NULL,
	"input_tokens" bigint NOT NULL,
	"input_cached_tokens" bigint NOT NULL,
	"output_tokens" bigint NOT NULL,
	"output_reasoning_tokens" bigint NOT NULL,
	"cost" numeric(38, 0) NOT NULL,
	CONSTRAINT "usage_hourly_organization_id_hour_key_id_project_id_model_pk" PRIMARY KEY("organization_id","hour","key_id","project_id","model")
);
--> statement-breakpoint
CREATE TABLE "usage_records" (
	"id" uuid PRIMARY KEY NOT NULL,
	"organization_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"key_id" uuid NOT NULL,
	"model" text NOT NULL,
	"endpoint" text NOT NULL,
	"stream" boolean NOT NULL,
	"status" integer NOT NULL,
	"outcome" text NOT NULL,
	"reason" text,
	"cache_hit" boolean NOT NULL,
	"input_tokens" bigint NOT NULL,
	"input_cached_tokens" bigint NOT NULL,
	"output_tokens" bigint NOT NULL,
	"output_reasoning_tokens" bigint NOT NULL,
	"usage_source" text NOT NULL,
	"cost" numeric(38, 0) NOT NULL,
	"written_off" numeric(38, 0) NOT NULL,
	"currency" text NOT NULL,
	"price_version_id" uuid NOT NULL,
	"queued_ms" integer NOT NULL,
	"first_byte_ms" integer,
	"total_ms" integer NOT NULL,
	"client_request_id" text
) PARTITION BY RANGE ("id");
--> statement-breakpoint
CREATE TABLE "usage_refusals" (
	"organization_id" uuid NOT NULL,
	"minute" timestamp with time zone NOT NULL,
	"key_id" uuid NOT NULL,
	"project_id" uuid NOT NULL,
	"model" text NOT NULL,
	"code" text NOT NULL,
	"count" bigint NOT NULL,
	CONSTRAINT "usage_refusals_organization_id_minute_key_id_project_id_model_code_pk" PRIMARY KEY("organization_id","minute","key_id","project_id","model","code")
);
--> statement-breakpoint
CREATE TABLE "ledger_entries" (
	"id" uuid PRIMARY KEY NOT NULL,
	"seq" bigint GENERATED ALWAYS AS IDENTITY (sequence name "ledger_entries_seq_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"organization_id" uuid NOT NULL,
	"type" text NOT NULL,
	"debit_account" text NOT NULL,
	"credit_account" text NOT NULL,
	"amount" numeric(38, 0) NOT NULL,
	"currency" text NOT NULL,
	"balance_after" numeric(38, 0) NOT NULL,
	"request_id" uuid,
	"reference" text,
	"note" text,
	"created_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "wallets" (
	"organization_id" uuid NOT NULL,
	"currency" text NOT NULL,
	"balance" numeric(38, 0) NOT NULL,
	"updated_at" timestamp with time zone NOT NULL,
	CONSTRAINT "wallets_organization_id_currency_pk" PRIMARY KEY("organization_id","currency")
);
--> statement-breakpoint
ALTER TABLE "memberships" ADD CONSTRAINT "memberships_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "memberships" ADD CONSTRAINT "memberships_user_id_users_id_fk" FOREIGN KEY ("user_id") REFERENCES "public"."users"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "projects" ADD CONSTRAINT "projects_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "price_versions" ADD CONSTRAINT "price_versions_model_id_models_id_fk" FOREIGN KEY ("model_id") REFERENCES "public"."models"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "memberships_user_idx" ON "memberships" USING btree ("user_id");--> statement-breakpoint
CREATE UNIQUE INDEX "projects_organization_name_key" ON "projects" USING btree ("organization_id",lower("name"));--> statement-breakpoint
CREATE UNIQUE INDEX "users_email_key" ON "users" USING btree (lower("email"));--> statement-breakpoint
CREATE INDEX "audit_log_organization_idx" ON "audit_log" USING btree ("organization_id","id");--> statement-breakpoint
CREATE INDEX "price_versions_model_idx" ON "price_versions" USING btree ("model_id","effective_from");--> statement-breakpoint
CREATE UNIQUE INDEX "api_keys_secret_hash_key" ON "api_keys" USING btree ("secret_hash");--> statement-breakpoint
CREATE INDEX "api_keys_organization_idx" ON "api_keys" USING btree ("organization_id","id");--> statement-breakpoint
CREATE INDEX "usage_records_organization_idx" ON "usage_records" USING btree ("organization_id","id");--> statement-breakpoint
CREATE INDEX "ledger_entries_organization_idx" ON "ledger_entries" USING btree ("organization_id","seq");--> statement-breakpoint
CREATE UNIQUE INDEX "ledger_entries_request_key" ON "ledger_entries" USING btree ("request_id") WHERE "ledger_entries"."request_id" is not null;--> statement-breakpoint
CREATE UNIQUE INDEX "ledger_entries_reference_key" ON "ledger_entries" USING btree ("organization_id","reference") WHERE "ledger_entries"."reference" is not null;
--> statement-breakpoint
-- Catches a record whose month has no partition yet; the gateway makes partitions ahead of time.
CREATE TABLE "usage_records_default" PARTITION OF "usage_records" DEFAULT;
--> statement-breakpoint
ALTER TABLE "ledger_entries" ADD CONSTRAINT "ledger_entries_amount_positive" CHECK ("amount" > 0 AND "debit_account" <> "credit_account");
--> statement-breakpoint
CREATE FUNCTION "refuse_change"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME;
END
$$;
--> statement-breakpoint
CREATE TRIGGER "ledger_entries_append_only" BEFORE UPDATE OR DELETE ON "ledger_entries" FOR EACH ROW EXECUTE FUNCTION "refuse_change"();
--> statement-breakpoint
CREATE TRIGGER "audit_log_append_only" BEFORE UPDATE OR DELETE ON "audit_log" FOR EACH ROW EXECUTE FUNCTION "refuse_change"();
