CREATE TABLE "fleet_demands" (
	"scope" text NOT NULL,
	"gateway_id" uuid NOT NULL,
	"seen_version" bigint NOT NULL,
	"waiting" integer NOT NULL,
	"engines" jsonb NOT NULL,
	"updated_at" timestamp with time zone NOT NULL,
	CONSTRAINT "fleet_demands_scope_gateway_id_pk" PRIMARY KEY("scope","gateway_id")
);
--> statement-breakpoint
CREATE TABLE "fleet_leases" (
	"scope" text PRIMARY KEY NOT NULL,
	"gateway_id" uuid NOT NULL,
	"epoch" bigint NOT NULL,
	"expires_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "fleet_orders" (
	"scope" text NOT NULL,
	"engine_id" text NOT NULL,
	"kind" text NOT NULL,
	"ordered_at" timestamp with time zone NOT NULL,
	CONSTRAINT "fleet_orders_scope_engine_id_pk" PRIMARY KEY("scope","engine_id")
);
--> statement-breakpoint
CREATE TABLE "fleet_published" (
	"scope" text PRIMARY KEY NOT NULL,
	"version" bigint NOT NULL,
	"epoch" bigint NOT NULL,
	"engines" jsonb NOT NULL
);
--> statement-breakpoint
CREATE TABLE "fleet_secrets" (
	"purpose" text PRIMARY KEY NOT NULL,
	"secret" text NOT NULL
);
