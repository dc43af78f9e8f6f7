import { exampleId, isoTime, numberedPage } from './examples.ts';
import type { Tag } from './operation.ts';

const node = {
  id: exampleId('node'),
  name: 'gpu-1',
  address: '10.0.0.7',
  private_address: null,
  ssh_port: 22,
  ssh_user: 'root',
  host_key: null,
  hardware_profile: 'h100-8x',
  gpus: 8,
  labels: { pool: 'training' },
  priced: true,
  status: 'registered',
  allocation: null,
  last_seen_at: null,
  created_at: isoTime,
};
const newNode = {
  name: node.name,
  address: node.address,
  ssh_user: node.ssh_user,
  hardware_profile: node.hardware_profile,
  gpus: node.gpus,
  labels: node.labels,
};
const summary = {
  id: exampleId('cluster'),
  name: 'research',
  organization_id: exampleId('org'),
  public_domain: 'apps.example.com',
  access: 'members',
  labels: { team: 'research' },
  status: 'active',
  access_identity: {
    public_key: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGpYb2xk headgate-research',
    fingerprint: 'SHA256:8zkQ5n0mXW8yq0o4xYk2s6l3h5w1v9b7d2f4g6j8k0M',
    origin: 'generated',
    encrypted_with: null,
    changed_at: isoTime,
  },
  nodes_total: 1,
  nodes_allocated: 0,
  created_at: isoTime,
  archived_at: null,
};
const cluster = { ...summary, nodes: [node] };
const allocation = { generation: 1, allocated_at: isoTime, released_at: null, estimated: false };

const times = { allocated_at: isoTime, released_at: null, estimated: false };
const history = {
  node_id: exampleId('node'),
  node_name: node.name,
  generation: 1,
  status: 'valid',
  ...times,
  amendments: [
    {
      amended_at: isoTime,
      reason: 'allocated with the wrong year',
      before: { ...times, allocated_at: '2015-03-01T00:00:00.000Z' },
      after: times,
    },
  ],
};
const correction = { reason: 'allocated with the wrong year', retroactive: true };
const followed =
  'Reports follow at once; the old times stay in `amendments`, and the reason in the audit log. `retroactive` is required ' +
  'for costs before this month (UTC). It also works for removed nodes, by id, and archived clusters.';

const operators = 'Requires a management key of a platform administrator.';
const sees = 'Any API key sees the clusters of its organization; a platform administrator sees all.';
const repeated =
  'A repeated event changes nothing and returns the recorded one; another time than the recorded one returns 409.';

export const clusters: Tag = {
  name: 'Clusters',
  description: 'Machines of an organization that stacks run on and whose hours are metered. Times are ISO 8601.',
  operations: {
    'GET /v1/clusters': {
      operationId: 'listClusters',
      summary: 'List clusters',
      description: `Returns a page of clusters, oldest first; archived ones only with \`status\`. ${sees}`,
      answer: numberedPage(summary),
    },
    'POST /v1/clusters': {
      operationId: 'createCluster',
      summary: 'Create a cluster',
      description:
        'Creates a cluster with up to 64 nodes. Add `access_identity.public_key` of the response to `authorized_keys` of ' +
        `each node, so that runs can log in. ${operators}`,
      request: {
        name: cluster.name,
        organization_id: cluster.organization_id,
        public_domain: cluster.public_domain,
        access: 'members',
        labels: cluster.labels,
        nodes: [newNode],
      },
      answer: cluster,
    },
    'GET /v1/clusters/{id}': {
      operationId: 'retrieveCluster',
      summary: 'Retrieve a cluster',
      description: `Returns one cluster with its nodes. ${sees}`,
      answer: cluster,
    },
    'PATCH /v1/clusters/{id}': {
      operationId: 'updateCluster',
      summary: 'Update a cluster',
      description:
        'Changes name, domain, access or labels, or moves the cluster to another organization, which pays its hours from then on. ' +
        `Returns 409 for a move while runs are pending or active. ${operators}`,
      request: { access: 'public' },
      answer: { ...cluster, access: 'public' },
    },
    'DELETE /v1/clusters/{id}': {
      operationId: 'deleteCluster',
      summary: 'Archive a cluster',
      description:
        'Releases all nodes, ends metering and runs, and archives the cluster. Its costs stay, and what runs created on ' +
        `the nodes is not removed. ${operators}`,
    },
    'POST /v1/clusters/{id}/access-identity/rotate': {
      operationId: 'rotateClusterAccessIdentity',
      summary: 'Rotate the SSH key of a cluster',
      description:
        'Replaces the key that runs use to log in to the nodes, with a generated key or the given `private_key`. The ' +
        `former key ends immediately. ${operators}`,
      request: {},
      answer: cluster,
    },
    'POST /v1/clusters/{id}/nodes': {
      operationId: 'createClusterNode',
      summary: 'Add a node to a cluster',
      description: `Adds a machine to a cluster. Metering starts when the node is allocated. ${operators}`,
      request: newNode,
      answer: node,
    },
    'PATCH /v1/clusters/{id}/nodes/{node}': {
      operationId: 'updateClusterNode',
      summary: 'Update a node',
      description:
        'Changes a node, named by id or name. Profile and GPUs change only while it is not allocated, and the name only ' +
        `while no run for it is pending or active (409). ${operators}`,
      request: { address: '10.0.0.8' },
      answer: { ...node, address: '10.0.0.8' },
    },
    'DELETE /v1/clusters/{id}/nodes/{node}': {
      operationId: 'deleteClusterNode',
      summary: 'Remove a node from a cluster',
      description:
        'Releases a node and removes it; its costs stay. Returns 409 while a run for it is pending or active, or while ' +
        `a stack is applied on it. ${operators}`,
    },
    'POST /v1/clusters/{id}/nodes/{node}/allocate': {
      operationId: 'allocateClusterNode',
      summary: 'Start metering a node',
      description: `Starts the hours of a node, now or at \`at\`, which must not be in the future. ${repeated} ${operators}`,
      request: { at: '2026-09-21T14:13:20Z' },
      answer: {
        outcome: 'recorded',
        allocation,
        node: { ...node, status: 'allocated', allocation },
      },
    },
    'POST /v1/clusters/{id}/nodes/{node}/release': {
      operationId: 'releaseClusterNode',
      summary: 'Stop metering a node',
      description: `Ends the hours of a node, now or at \`at\`, which must not be in the future. ${repeated} ${operators}`,
      request: { at: '2026-09-21T14:13:20Z' },
      answer: {
        outcome: 'recorded',
        allocation: { ...allocation, released_at: isoTime },
        node: { ...node, status: 'released', allocation: { ...allocation, released_at: isoTime } },
      },
    },
    'GET /v1/clusters/{id}/allocations': {
      operationId: 'listClusterAllocations',
      summary: 'List allocations of a cluster',
      description: `Returns a page of the allocations of the nodes, also of removed ones, latest first, with their amendments. ${sees}`,
      answer: numberedPage(history),
    },
    'POST /v1/clusters/{id}/nodes/{node}/allocations/{generation}/amend': {
      operationId: 'amendClusterAllocation',
      summary: 'Amend an allocation',
      description: `Corrects the times of a wrong allocation. ${followed} ${operators}`,
      request: { allocated_at: isoTime, ...correction },
      answer: history,
    },
    'POST /v1/clusters/{id}/nodes/{node}/allocations/{generation}/void': {
      operationId: 'voidClusterAllocation',
      summary: 'Void an allocation',
      description: `Removes the hours and costs of an allocation that was reported by mistake. ${followed} ${operators}`,
      request: correction,
      answer: {
        ...history,
        status: 'voided',
        amendments: [{ amended_at: isoTime, reason: correction.reason, before: times, after: null }],
      },
    },
    'POST /v1/clusters/{id}/nodes/{node}/heartbeat': {
      operationId: 'recordClusterNodeHeartbeat',
      summary: 'Record a heartbeat of a node',
      description:
        'Records that a node is alive. A heartbeat undoes a release that was estimated after ' +
        '`HEADGATE_NODE_SILENCE_SECONDS` without heartbeats. ' +
        operators,
    },
  },
};
