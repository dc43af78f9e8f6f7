import type { ISql } from 'postgres';
import type { Config } from '#base/config/config.ts';
import { connectDb } from '#base/database/database.ts';
import { countOtherKeysWebhooks } from '#core/alerts/alerts.ts';
import { overdueMs, readNewestBackup } from '#core/backups/backups.ts';
import { countOtherKeysIdentities } from '#core/clusters/clusters.ts';
import { countOtherKeysResponses } from '#core/responses/responses.ts';
import { countOtherKeysSeals } from '#core/runs/runs.ts';
import { createKeyRing, KeyFileError, readKeyState } from '#core/secrets/secrets.ts';
import { dataDirOf, findDatabaseUrl, type Finding, note, ok, patience, wrong } from './doctor-checks.ts';
import { reportKey } from './platform-key-report.ts';

const hourMs = 3_600_000;

/** Reports the age of the newest backup that was recorded in the database. */
export async function checkBackups(config: Config): Promise<Finding> {
  const read = await readDatabase(config, 'backups', readNewestBackup);
  if (read === null) return note('not checked: no database of this version is reachable');
  const { newest, databaseMadeAtMs } = read;
  const how = 'make a backup now: "headgate backup FILE", or with Compose "backup.sh now" (compose/README.md, Backups)';
  const ageMs = Date.now() - (newest?.madeAtMs ?? databaseMadeAtMs ?? Date.now());
  const hours = Math.floor(ageMs / hourMs);
  const message =
    newest === null
      ? `no backup was ever recorded, and the database is ${hours} hours old`
      : `the newest good backup, ${newest.name}, is ${hours} hours old`;
  if (ageMs <= overdueMs) return newest === null ? note('no backup yet', how) : ok(message);
  return wrong(
    `${message}; the limit is ${overdueMs / hourMs} hours`,
    `${how}. With Compose "docker compose logs backup" shows why the daily backup fails`,
  );
}

/** Compares the key that the database was encrypted with to the keys of this environment. */
export async function checkPlatformKey(config: Config): Promise<Finding> {
  const { keys, backupPassphrase } = config.platform;
  const ring = createKeyRing(keys, dataDirOf(config));
  try {
    const own = ring.read();
    const state = await readDatabase(config, 'platform_keys', (sql) => readKeyState(sql, ring));
    if (state !== null) {
      const otherKeys = (await readDatabase(config, 'stack_states', (sql) => countOtherKeys(sql, state.id))) ?? 0;
      if (state.isHere && otherKeys > 0) {
        return note(
          `${state.id} in ${ring.place}; an older key still encrypts ${otherKeys} values in the database`,
          'keep the older key: gateways encrypt these values again within a minute, and log values that they cannot decrypt',
        );
      }
      return reportKey(state, { place: ring.place, hasPassphrase: backupPassphrase !== null });
    }
    if (own.length > 0)
      return ok(
        `${own.length} ${own.length === 1 ? 'key' : 'keys'} in ${ring.place}; nothing in the database is encrypted with it yet`,
      );
    return note('none yet: the first cluster, webhook or stored response creates one in the data folder');
  } catch (error) {
    if (!(error instanceof KeyFileError)) throw error;
    return wrong(error.message, `correct ${ring.place}; without the key, encrypted data is unreadable`);
  }
}

/** Counts the values in the database that a platform key other than `keyId` encrypted. */
async function countOtherKeys(sql: ISql, keyId: string): Promise<number> {
  const counts = [countOtherKeysIdentities, countOtherKeysWebhooks, countOtherKeysSeals, countOtherKeysResponses];
  let sum = 0;
  for (const count of counts) sum += await count(sql, keyId);
  return sum;
}

/** Reads from the database. Returns null when no database answers, or when it has no table of this name yet. */
async function readDatabase<T>(config: Config, table: string, read: (sql: ISql) => Promise<T>): Promise<T | null> {
  const url = await findDatabaseUrl(config);
  if (url === null) return null;
  const db = connectDb(url, { poolMax: 1, purpose: 'command', limits: patience });
  try {
    const [row] = await db.sql`select to_regclass(${table}) is not null as there`;
    return row?.['there'] === true ? await read(db.sql) : null;
  } catch (error) {
    if (error instanceof KeyFileError) throw error;
    // The check of PostgreSQL reports it.
    return null;
  } finally {
    await db.close();
  }
}
