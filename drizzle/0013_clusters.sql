CREATE TABLE "cluster_nodes" (
	"id" uuid PRIMARY KEY NOT NULL,
	"cluster_id" uuid NOT NULL,
	"name" text NOT NULL,
	"address" text NOT NULL,
	"private_address" text,
	"ssh_port" integer NOT NULL,
	"ssh_user" text NOT NULL,
	"host_key" text,
	"hardware_profile" text NOT NULL,
	"gpus" integer NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL,
	"last_seen_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "clusters" (
	"id" uuid PRIMARY KEY NOT NULL,
	"organization_id" uuid NOT NULL,
	"name" text NOT NULL,
	"public_domain" text,
	"created_at" timestamp (3) with time zone NOT NULL,
	"archived_at" timestamp (3) with time zone,
	"access_public_key" text NOT NULL,
	"access_fingerprint" text NOT NULL,
	"access_origin" text NOT NULL,
	"access_changed_at" timestamp (3) with time zone NOT NULL,
	"access_key_id" text,
	"access_sealed" "bytea",
	CONSTRAINT "clusters_access_sealed" CHECK (("clusters"."access_key_id" is null) = ("clusters"."access_sealed" is null))
);
--> statement-breakpoint
CREATE TABLE "platform_keys" (
	"id" text PRIMARY KEY NOT NULL,
	"position" integer GENERATED ALWAYS AS IDENTITY (sequence name "platform_keys_position_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 2147483647 START WITH 1 CACHE 1),
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "platform_keys_position_unique" UNIQUE("position")
);
--> statement-breakpoint
ALTER TABLE "cluster_nodes" ADD CONSTRAINT "cluster_nodes_cluster_id_clusters_id_fk" FOREIGN KEY ("cluster_id") REFERENCES "public"."clusters"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "cluster_nodes_cluster_name_key" ON "cluster_nodes" USING btree ("cluster_id","name");--> statement-breakpoint
CREATE UNIQUE INDEX "clusters_organization_name_key" ON "clusters" USING btree ("organization_id","name") WHERE "clusters"."archived_at" is null;--> statement-breakpoint
CREATE UNIQUE INDEX "clusters_domain_name_key" ON "clusters" USING btree ("public_domain","name") WHERE "clusters"."archived_at" is null;--> statement-breakpoint
CREATE INDEX "clusters_organization_idx" ON "clusters" USING btree ("organization_id","id");