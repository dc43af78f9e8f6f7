CREATE TABLE "adapter_bases" (
	"adapter_id" text NOT NULL,
	"base_id" text,
	"effective_from" timestamp with time zone NOT NULL,
	CONSTRAINT "adapter_bases_adapter_id_effective_from_pk" PRIMARY KEY("adapter_id","effective_from")
);
--> statement-breakpoint
ALTER TABLE "engine_requests" ADD COLUMN "uncounted_prompt_tokens" bigint;--> statement-breakpoint
ALTER TABLE "engine_requests" ADD COLUMN "uncounted_completion_tokens" bigint;--> statement-breakpoint
ALTER TABLE "gateway_runs" ADD COLUMN "under_way" jsonb;--> statement-breakpoint
ALTER TABLE "usage_requests" ADD COLUMN "prompt_tokens_max" bigint;--> statement-breakpoint
ALTER TABLE "adapter_bases" ADD CONSTRAINT "adapter_bases_adapter_id_models_id_fk" FOREIGN KEY ("adapter_id") REFERENCES "public"."models"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
INSERT INTO "adapter_bases" ("adapter_id", "base_id", "effective_from")
SELECT "id", "base_id", "first_seen_at" FROM "models" WHERE "base_id" IS NOT NULL;
