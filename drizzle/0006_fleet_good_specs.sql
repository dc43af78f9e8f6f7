CREATE TABLE "fleet_good_specs" (
	"scope" text NOT NULL,
	"engine_id" text NOT NULL,
	"spec_hash" text NOT NULL,
	"definition" json NOT NULL,
	"revision" bigint NOT NULL,
	"updated_at" timestamp with time zone NOT NULL,
	CONSTRAINT "fleet_good_specs_scope_engine_id_pk" PRIMARY KEY("scope","engine_id")
);
