import { z } from 'zod';
import { idText } from './fields.ts';
import { pageOf } from './lists.ts';

/** Answers of `/v1/clusters`. */

const access = z.enum(['public', 'members']).meta({
  description: 'Who may open web addresses of runs: everyone, or members of the organization',
});

const moments = z.iso.datetime();

const labels = z
  .record(z.string(), z.string())
  .meta({ example: { team: 'research' }, description: 'Labels by which costs can be grouped' });

const allocationTimes = {
  allocated_at: moments.nullable().meta({ description: 'Null if only the release was reported' }),
  released_at: moments.nullable().meta({ description: 'Null while the node is allocated' }),
  estimated: z.boolean().meta({ description: 'true if the release is estimated from missing heartbeats' }),
};

const allocationSchema = z
  .object({
    generation: z.int().meta({ description: 'Number of the allocation of the node, counted from 1' }),
    ...allocationTimes,
  })
  .meta({ id: 'NodeAllocation' });

/** A node of a cluster. */
export const nodeSchema = z
  .object({
    id: idText('node'),
    name: z.string(),
    address: z.string(),
    private_address: z.string().nullable(),
    ssh_port: z.int(),
    ssh_user: z.string(),
    host_key: z.string().nullable().meta({ description: 'SSH host key; null if it is not verified' }),
    hardware_profile: z.string(),
    gpus: z.int().meta({ description: 'Number of GPUs' }),
    labels: labels.meta({ description: 'Own labels of the node; it also has those of its cluster' }),
    priced: z
      .boolean()
      .meta({ description: 'false if no rate card prices `hardware_profile` now: its hours are unrated' }),
    status: z.enum(['registered', 'allocated', 'released']).meta({
      description: '`registered`: never allocated. `allocated`: metered now. `released`: no longer metered',
    }),
    allocation: allocationSchema
      .nullable()
      .meta({ id: 'NodeAllocation', description: 'Current allocation, or the last one' }),
    last_seen_at: moments.nullable().meta({ description: 'Last heartbeat; null if there was none' }),
    created_at: moments,
  })
  .meta({ id: 'ClusterNode' });

/** Result of an event of a node. */
export const nodeEventResultSchema = z
  .object({
    outcome: z.enum(['recorded', 'repeated']).meta({ description: '`repeated`: the event was already recorded' }),
    allocation: allocationSchema,
    node: nodeSchema,
  })
  .meta({ id: 'NodeEventResult' });

/** An allocation of a node with its amendments. */
export const allocationHistorySchema = z
  .object({
    node_id: idText('node'),
    node_name: z
      .string()
      .nullable()
      .meta({ description: 'Last name of the node; null if only a release was reported' }),
    generation: z.int().meta({ description: 'Number of the allocation of the node, counted from 1' }),
    status: z.enum(['valid', 'voided']).meta({ description: '`voided`: it has no hours and no costs' }),
    ...allocationTimes,
    amendments: z
      .array(
        z
          .object({
            amended_at: moments,
            reason: z.string(),
            before: z.object(allocationTimes),
            after: z.object(allocationTimes).nullable().meta({ description: 'Null if the allocation was voided' }),
          })
          .meta({ id: 'AllocationAmendment' }),
      )
      .meta({ description: 'Amendments, oldest first; the audit log has their authors' }),
  })
  .meta({ id: 'AllocationHistory' });

/** A page of allocations of a cluster. */
export const allocationPageSchema = pageOf(allocationHistorySchema, 'AllocationPage');

const clusterFields = {
  id: idText('cluster'),
  name: z.string(),
  organization_id: idText('org'),
  public_domain: z.string().nullable().meta({ description: 'Domain of web addresses of runs; null if there is none' }),
  access,
  labels,
  status: z.enum(['active', 'archived']).meta({ description: '`archived`: deleted; its costs are kept' }),
  access_identity: z.object({
    public_key: z.string().meta({ description: 'Line for `authorized_keys` of the nodes' }),
    fingerprint: z.string().meta({ description: 'SHA-256 fingerprint of the public key' }),
    origin: z.enum(['generated', 'given']).meta({ description: '`given`: the private key was sent in a request' }),
    encrypted_with: z.string().nullable().meta({
      description: 'Fingerprint of the platform key that encrypts the private key; null if there is no private key',
    }),
    changed_at: moments.meta({ description: 'When the key was created or rotated' }),
  }),
  nodes_total: z.int().meta({ description: 'Number of nodes' }),
  nodes_allocated: z.int().meta({ description: 'Number of nodes that are metered now' }),
  created_at: moments,
  archived_at: moments.nullable().meta({ description: 'Null while the cluster is active' }),
};

/** A cluster without its nodes. */
export const clusterSummarySchema = z.object(clusterFields).meta({ id: 'ClusterSummary' });

/** A cluster with its nodes. */
export const clusterSchema = z.object({ ...clusterFields, nodes: z.array(nodeSchema) }).meta({ id: 'Cluster' });

/** A page of clusters. */
export const clusterPageSchema = pageOf(clusterSummarySchema, 'ClusterPage');

export type NodeAnswer = z.infer<typeof nodeSchema>;
export type NodeEventResultAnswer = z.infer<typeof nodeEventResultSchema>;
export type AllocationHistoryAnswer = z.infer<typeof allocationHistorySchema>;
export type ClusterSummaryAnswer = z.infer<typeof clusterSummarySchema>;
export type ClusterAnswer = z.infer<typeof clusterSchema>;
