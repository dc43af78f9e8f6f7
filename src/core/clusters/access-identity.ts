import { and, asc, eq, isNotNull, ne } from 'drizzle-orm';
import type { ISql } from 'postgres';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import type { Sealed, Secrets } from '#core/secrets/secrets.ts';
import { clusterKey, type ClusterRow } from './cluster.ts';
import { clusters } from './schema.ts';
import { makeKeyPair, parsePrivateKey } from './ssh-keys.ts';

export type AccessColumns = Pick<
  ClusterRow,
  'accessPublicKey' | 'accessFingerprint' | 'accessOrigin' | 'accessKeyId' | 'accessSealed'
>;

const purposeOf = (clusterId: string): string => `access identity of ${clusterKey(clusterId)}`;

/**
 * Creates the access identity of a cluster.
 * @param given a private key that `parsePrivateKey` accepts; null generates one
 * @throws AppError secrets_unavailable
 */
export async function newAccessIdentity(
  tx: Transaction,
  secrets: Secrets,
  clusterId: string,
  given: string | null,
): Promise<AccessColumns> {
  const comment = `headgate ${clusterKey(clusterId)}`;
  const pair = given === null ? makeKeyPair(comment) : parsePrivateKey(given);
  const { keyId, bytes } = await secrets.seal(tx, purposeOf(clusterId), pair.privateKey);
  return {
    accessPublicKey: `${pair.publicKey} ${comment}`,
    accessFingerprint: pair.fingerprint,
    accessOrigin: given === null ? 'generated' : 'given',
    accessKeyId: keyId,
    accessSealed: bytes,
  };
}

/**
 * Decrypts the private key of a cluster, for a run.
 * @returns null if the cluster does not exist or is archived
 * @throws AppError secrets_unavailable
 */
export async function openPrivateKey(db: Db, secrets: Secrets, clusterId: string): Promise<string | null> {
  const [row] = await db.orm.select().from(clusters).where(eq(clusters.id, clusterId));
  const sealed = row === undefined ? null : sealedOf(row);
  return sealed === null ? null : secrets.open(purposeOf(clusterId), sealed);
}

const sealedOf = ({ accessKeyId, accessSealed }: ClusterRow): Sealed | null =>
  accessKeyId === null || accessSealed === null ? null : { keyId: accessKeyId, bytes: accessSealed };

/**
 * Encrypts again, with the key in use, the identities that an older platform key encrypted. Several gateways may run
 * this at once: each takes rows that no other has. An identity that cannot be decrypted stays, and the log names it.
 * @returns the number of identities encrypted again; 0 if this gateway lacks the key in use, which `secrets.check`
 * reports
 */
export async function resealIdentities(db: Db, secrets: Secrets, log: Log): Promise<number> {
  const keyId = await keyInUseOrNull(secrets);
  if (keyId === null) return 0;
  const stale = await db.orm
    .select({ id: clusters.id })
    .from(clusters)
    .where(and(isNotNull(clusters.accessSealed), ne(clusters.accessKeyId, keyId)))
    .orderBy(asc(clusters.id));
  let resealed = 0;
  for (const { id } of stale) {
    try {
      if (await resealOne(db, secrets, { id, keyId })) resealed += 1;
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      log.error(
        { cluster: clusterKey(id), trouble: error.message },
        'the access identity of a cluster still needs an older platform key; keep that key, or rotate the access identity',
      );
    }
  }
  if (resealed > 0)
    log.info({ resealed, keyId }, 'encrypted access identities of clusters with the current platform key');
  return resealed;
}

/** Counts access identities that a platform key other than this one encrypted. */
export async function countOtherKeysIdentities(sql: ISql, keyId: string): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from clusters where access_sealed is not null and access_key_id <> ${keyId}`;
  return row?.count ?? 0;
}

async function resealOne(
  db: Db,
  secrets: Secrets,
  { id, keyId }: { readonly id: string; readonly keyId: string },
): Promise<boolean> {
  return db.orm.transaction(async (tx) => {
    const ofCluster = and(eq(clusters.id, id), ne(clusters.accessKeyId, keyId));
    const [row] = await tx.select().from(clusters).where(ofCluster).for('update', { skipLocked: true });
    const sealed = row === undefined ? null : sealedOf(row);
    if (sealed === null) return false;
    const fresh = await secrets.seal(tx, purposeOf(id), secrets.open(purposeOf(id), sealed));
    await tx.update(clusters).set({ accessKeyId: fresh.keyId, accessSealed: fresh.bytes }).where(eq(clusters.id, id));
    return true;
  });
}

/** Returns null if nothing was ever encrypted, or if the key is not here. */
async function keyInUseOrNull(secrets: Secrets): Promise<string | null> {
  try {
    return await secrets.keyInUse();
  } catch (error) {
    if (error instanceof AppError) return null;
    throw error;
  }
}
