CREATE TABLE "node_labels" (
	"node_id" text NOT NULL,
	"since_ms" bigint NOT NULL,
	"labels" jsonb NOT NULL,
	CONSTRAINT "node_labels_node_id_since_ms_pk" PRIMARY KEY("node_id","since_ms")
);
--> statement-breakpoint
ALTER TABLE "cluster_nodes" ADD COLUMN "labels" jsonb DEFAULT '{}'::jsonb NOT NULL;--> statement-breakpoint
ALTER TABLE "clusters" ADD COLUMN "labels" jsonb DEFAULT '{}'::jsonb NOT NULL;