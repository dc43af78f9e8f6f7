import { type Config, readAddress } from '#base/config/config.ts';
import { connectDb } from '#base/database/database.ts';
import { differenceText, findDifferences, readLiveGateways } from '#core/gateways/gateways.ts';
import { readinessSchema } from '#edge/contract/health.ts';
import { dataDirOf, findDatabaseUrl, type Finding, note, ok, patience, wrong } from './doctor-checks.ts';

/** Checks the running gateway, and compares the gateways of the database. */

const answerMs = 5000;

/** Addresses of this environment's gateway, in the order in which they are asked. */
function addressesOf(config: Config): readonly string[] {
  const named = config.environment['HEADGATE_URL'] ?? '';
  if (named !== '') return [named];
  const noted = readAddress(dataDirOf(config));
  return [...new Set([...(noted === null ? [] : [noted]), listeningUrl(config)])];
}

interface FoundGateway {
  readonly url: string;
  readonly finding: Finding;
}

/**
 * Asks the gateway at HEADGATE_URL; without it, at the address noted in the data folder, then at HOST and PORT.
 * @returns null if none answers
 */
export async function findGateway(config: Config): Promise<FoundGateway | null> {
  for (const url of addressesOf(config)) {
    const finding = await askGateway(url);
    if (finding !== null) return { url, finding };
  }
  return null;
}

export async function checkGateway(config: Config): Promise<Finding> {
  const found = await findGateway(config);
  if (found !== null) return found.finding;
  if ((config.environment['HEADGATE_URL'] ?? '') !== '') {
    return note(`no gateway answers at ${config.environment['HEADGATE_URL']} (HEADGATE_URL)`);
  }
  const [first, second] = addressesOf(config);
  const tried = second === undefined ? first : `${first} (noted in the data folder) or ${second}`;
  return note(`no gateway answers at ${tried}; "npm start" starts one, HEADGATE_URL sets another address`);
}

function listeningUrl({ http: { host, port } }: Config): string {
  const name = ['0.0.0.0', '::'].includes(host) ? '127.0.0.1' : host;
  return `http://${name.includes(':') ? `[${name}]` : name}:${port}`;
}

/** Reads the lists in an answer of `/readyz`; none for another server. */
const listsSchema = readinessSchema.omit({ status: true }).catch({});

/** @returns null where nothing answers */
async function askGateway(address: string): Promise<Finding | null> {
  const url = address.replace(/\/+$/, '');
  try {
    const response = await fetch(`${url}/readyz`, { signal: AbortSignal.timeout(answerMs), redirect: 'manual' });
    const { warnings = [], not_ready: missing = [] } = listsSchema.parse(await response.json().catch(() => ({})));
    if (warnings.includes('database_older')) {
      return wrong(
        `the database is older than the gateway at ${url}, as after the restore of a backup from before an upgrade`,
        'restart one gateway, which migrates the database, or restore a newer backup',
      );
    }
    if (response.ok) return ok(`runs at ${url}`);
    const what = missing.length === 0 ? `answers with ${response.status}` : `is not ready: ${missing.join(', ')}`;
    return note(`the server at ${url} ${what}`, 'its log shows why it is not ready');
  } catch {
    return null;
  }
}

/** Compares the live gateways of the database, by what each has published. */
export async function checkAgreement(config: Config): Promise<readonly Finding[]> {
  const url = await findDatabaseUrl(config);
  if (url === null) return [note('not checked: no database is running')];
  const db = connectDb(url, { poolMax: 1, purpose: 'command', limits: patience });
  try {
    const live = await readLiveGateways(db);
    const differences = findDifferences(live);
    if (live.length === 0) return [note('none is running on this database')];
    if (differences.length === 0)
      return [ok(live.length === 1 ? 'one is running' : `${live.length} are running, and agree`)];
    const next = 'give all gateways the same values: compose/operations.md, "Conditions for several gateways"';
    return differences.map((difference) => wrong(differenceText(difference), next));
  } catch {
    // The check of PostgreSQL reports a broken database. A database that no gateway of this version has started on
    // lacks the columns.
    return [note('not checked: the database cannot be read, or no gateway of this version has started on it')];
  } finally {
    await db.close();
  }
}
