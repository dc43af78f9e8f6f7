import { isDeepStrictEqual } from 'node:util';
import { asc, eq, inArray } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import type { Organization } from '#core/accounts/accounts.ts';
import type { AuditView, Author } from '#core/audit/audit.ts';
import { newAccessIdentity } from './access-identity.ts';
import {
  type ClusterParts,
  lockActive,
  lockCluster,
  refusingTakenNames,
  releaseAll,
  requireOrganization,
} from './change.ts';
import { clusterKey, type ClusterRow, type ClusterWithNodes, type NodeInput } from './cluster.ts';
import { readNodes, withNodes } from './cluster-reads.ts';
import { changeLabels, type LabelChanges, type Labels } from './labels.ts';
import { insertNodes, recordLabels, requireFewLabels } from './node-changes.ts';
import { clusterNodes, clusters, silentNodes } from './schema.ts';

export interface NewCluster {
  readonly organizationId: string;
  readonly name: string;
  readonly publicDomain: string | null;
  readonly access: ClusterRow['access'];
  readonly labels: Labels;
  readonly nodes: readonly NodeInput[];
  /** A private key that `parsePrivateKey` accepts; null generates one. */
  readonly privateKey: string | null;
}

export interface ClusterPatch {
  readonly name?: string | undefined;
  readonly publicDomain?: string | null | undefined;
  readonly access?: ClusterRow['access'] | undefined;
  readonly labels?: LabelChanges | undefined;
  /** Moves the cluster: open allocations continue for the new organization. */
  readonly organizationId?: string | undefined;
}

function auditView(row: ClusterRow): AuditView {
  return {
    name: row.name,
    organization_id: formatId('org', row.organizationId),
    public_domain: row.publicDomain,
    access: row.access,
    labels: row.labels,
    archived: row.archivedAt !== null,
    access_identity: row.accessFingerprint,
  };
}

interface Noted {
  readonly action: string;
  readonly before: ClusterRow | null;
  readonly after: ClusterRow;
  readonly author: Author;
}

/** Records a change in the audit logs of the organizations that own the cluster and that owned it before. */
async function note(tx: Transaction, { audit }: ClusterParts, { action, before, after, author }: Noted): Promise<void> {
  for (const organizationId of new Set([before?.organizationId ?? after.organizationId, after.organizationId])) {
    await audit.record(tx, {
      organizationId,
      author,
      action: `cluster.${action}`,
      targetType: 'cluster',
      targetId: clusterKey(after.id),
      before: before === null ? null : auditView(before),
      after: auditView(after),
    });
  }
}

/**
 * @throws AppError conflict if the name is in use, invalid_value if there is no such organization, secrets_unavailable
 */
export async function createCluster(parts: ClusterParts, input: NewCluster, author: Author): Promise<ClusterWithNodes> {
  const { db, clock, secrets, costs } = parts;
  return refusingTakenNames(() =>
    db.orm.transaction(async (tx) => {
      const now = new Date(clock.now());
      await requireOrganization(tx, parts, input.organizationId);
      const id = uuidv7(now.getTime());
      const { organizationId, name, publicDomain, access } = input;
      const labels = changeLabels({}, input.labels);
      const identity = await newAccessIdentity(tx, secrets, id, input.privateKey);
      const row: ClusterRow = {
        id,
        organizationId,
        name,
        publicDomain,
        access,
        labels,
        createdAt: now,
        archivedAt: null,
        accessChangedAt: now,
        ...identity,
      };
      await tx.insert(clusters).values(row);
      await note(tx, parts, { action: 'created', before: null, after: row, author });
      await insertNodes(tx, parts, { cluster: row, nodes: input.nodes, author });
      return withNodes(tx, costs, row);
    }),
  );
}

/**
 * Returns null if the cluster does not exist.
 * @throws AppError conflict if the name is in use or the cluster is archived
 */
export async function patchCluster(
  parts: ClusterParts,
  clusterId: string,
  patch: ClusterPatch,
  author: Author,
): Promise<ClusterWithNodes | null> {
  const { db, costs } = parts;
  return refusingTakenNames(() =>
    db.orm.transaction(async (tx) => {
      const before = await lockActive(tx, clusterId);
      if (before === null) return null;
      const { labels: labelChanges = {}, ...fields } = patch;
      const labels = requireFewLabels(changeLabels(before.labels, labelChanges));
      const after = { ...before, ...withoutUndefined(fields), labels };
      if (isDeepStrictEqual(auditView(after), auditView(before))) return withNodes(tx, costs, before);
      const { name, publicDomain, access, organizationId } = after;
      if (organizationId !== before.organizationId) await move(tx, parts, before, organizationId);
      const changed = { name, publicDomain, access, organizationId, labels };
      await tx.update(clusters).set(changed).where(eq(clusters.id, clusterId));
      await recordLabels(tx, parts, after, await readNodes(tx, [after]));
      const action = organizationId === before.organizationId ? 'changed' : 'moved';
      await note(tx, parts, { action, before, after, author });
      return withNodes(tx, costs, after);
    }),
  );
}

function withoutUndefined(
  patch: Omit<ClusterPatch, 'labels'>,
): Partial<Pick<ClusterRow, 'name' | 'publicDomain' | 'access' | 'organizationId'>> {
  return Object.fromEntries(Object.entries(patch).filter(([, value]) => value !== undefined));
}

/**
 * Requires that no run is pending or active: runs have the nodes of their cluster, and its key.
 * @throws AppError conflict
 */
async function requireIdle(tx: Transaction, { runsUnderWay }: ClusterParts, clusterId: string): Promise<void> {
  const ids = await runsUnderWay(tx, clusterId);
  if (ids.length === 0) return;
  const message = `The cluster has pending or active runs: ${ids.join(', ')}. Wait until they finish, or cancel them, before you move it.`;
  throw new AppError('conflict', { message, param: 'organization_id' });
}

/** Ends intervals for one organization, and continues them for the other at the same moment. */
async function move(tx: Transaction, parts: ClusterParts, cluster: ClusterRow, to: string): Promise<void> {
  await requireIdle(tx, parts, cluster.id);
  // Sorted, so that two clusters that swap organizations do not deadlock.
  const found = new Map<string, Organization>();
  for (const id of [cluster.organizationId, to].toSorted()) {
    // The previous organization may be suspended or closed.
    const organization =
      id === to ? await requireOrganization(tx, parts, id) : await parts.accounts.lockOrganization(tx, id);
    if (organization !== null) found.set(id, organization);
  }
  const refOf = (id: string) => ({ id, name: found.get(id)?.name ?? '' });
  const [source, target] = [refOf(cluster.organizationId), refOf(to)];
  await parts.costs.moveCluster(tx, { clusterId: clusterKey(cluster.id), from: source, to: target, atMs: null });
  // The new organization gets its own notices about nodes that are silent now.
  const nodesOfCluster = tx
    .select({ id: clusterNodes.id })
    .from(clusterNodes)
    .where(eq(clusterNodes.clusterId, cluster.id));
  await tx.delete(silentNodes).where(inArray(silentNodes.nodeId, nodesOfCluster));
}

/**
 * Releases all nodes, which ends metering, and deletes the private key. The cluster stays, archived, with its hours.
 * @returns false if the cluster does not exist; an archived one stays as it is
 */
export async function archiveCluster(parts: ClusterParts, clusterId: string, author: Author): Promise<boolean> {
  const { db, clock } = parts;
  return db.orm.transaction(async (tx) => {
    const before = await lockCluster(tx, clusterId);
    if (before === null) return false;
    if (before.archivedAt !== null) return true;
    const nodes = await tx
      .select()
      .from(clusterNodes)
      .where(eq(clusterNodes.clusterId, clusterId))
      .orderBy(asc(clusterNodes.id));
    await releaseAll(tx, parts, clusterKey(clusterId), nodes);
    const archival = { archivedAt: new Date(clock.now()), accessKeyId: null, accessSealed: null };
    await tx.update(clusters).set(archival).where(eq(clusters.id, clusterId));
    await note(tx, parts, { action: 'archived', before, after: { ...before, ...archival }, author });
    return true;
  });
}

/**
 * Replaces the access identity at once: runs that start from now on log in with the new one.
 * @param privateKey a key that `parsePrivateKey` accepts; null generates one
 */
export async function rotateAccessIdentity(
  parts: ClusterParts,
  clusterId: string,
  privateKey: string | null,
  author: Author,
): Promise<ClusterWithNodes | null> {
  const { db, clock, secrets, costs } = parts;
  return db.orm.transaction(async (tx) => {
    const before = await lockActive(tx, clusterId);
    if (before === null) return null;
    const identity = await newAccessIdentity(tx, secrets, clusterId, privateKey);
    const changed = { ...identity, accessChangedAt: new Date(clock.now()) };
    await tx.update(clusters).set(changed).where(eq(clusters.id, clusterId));
    const after = { ...before, ...changed };
    await note(tx, parts, { action: 'access_identity_rotated', before, after, author });
    return withNodes(tx, costs, after);
  });
}
