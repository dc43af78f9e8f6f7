import type { Sql, TransactionSql } from 'postgres';
import { ClosedDoorError, type Doors } from './forbidden-targets.ts';
import { labelsFor, wantedLabel } from './label.ts';
import type { ClusterPlace, DeclaredPort, Exposure, ExposureSources, Target } from './types.ts';

/** Reads the declared ports of runs, assigns each a name, and deletes names that are no longer declared. */
export interface Listing {
  /** @throws errors of the stores */
  read(): Promise<Listed>;
}

export interface Listed {
  /** All live addresses. */
  readonly exposures: readonly Exposure[];
  /** All runs with a declared port, including those without an address. */
  readonly runIds: ReadonlySet<string>;
  /** Reasons why declared ports have no address, by run. */
  readonly problems: ReadonlyMap<string, string>;
}

export interface ListingParts {
  readonly sql: Sql;
  readonly sources: ExposureSources;
  /** Host names that belong to the gateway itself: no application may share cookies with them. */
  readonly ownHosts: readonly string[];
  readonly doors: Doors;
}

interface Wanted {
  readonly declared: DeclaredPort;
  readonly place: ClusterPlace;
  readonly domain: string;
  readonly label: string;
  readonly target: Target | null;
}

/** Ports that get an address, and the problems of those that do not. */
interface Sorted {
  readonly wanted: readonly Wanted[];
  readonly problems: ReadonlyMap<string, string>;
}

interface Row {
  readonly installationId: string;
  readonly runId: string;
  readonly domain: string;
  readonly label: string;
  readonly wanted: string;
  readonly target: string;
}

export function createListing({ sql, sources, ownHosts, doors }: ListingParts): Listing {
  async function readWanted(declared: readonly DeclaredPort[]): Promise<Sorted> {
    const places = await sources.clusters([...new Set(declared.map(({ clusterId }) => clusterId))]);
    const byId = new Map(places.map((place) => [place.id, place]));
    const all = declared.flatMap((port) => wantedOf(port, byId.get(port.clusterId), ownHosts));
    const targets = all.flatMap(({ target }) => (target === null ? [] : [target]));
    const sshPorts = await sources.sshPorts(targets.map(({ node, port }) => ({ address: node.address, port })));
    const closed = new Set(sshPorts.map(doorName));
    const problems = new Map<string, string>();
    for (const { declared: of, target } of all) {
      const problem = target === null ? null : await problemOf(target, closed, doors);
      if (problem !== null) problems.set(of.runId, problem);
    }
    return { wanted: all.filter((one) => !problems.has(one.declared.runId)), problems };
  }

  const readRows = (tx: Sql | TransactionSql): Promise<readonly Row[]> => tx<Row[]>`
    select installation_id as "installationId", run_id as "runId", domain, label, wanted, target from exposures`;

  /** Writes the names in a lock: one of several gateways writes, and the others find the result. */
  async function settle(): Promise<Listed> {
    return sql.begin(async (tx) => {
      await tx`select pg_advisory_xact_lock(hashtextextended('headgate exposures', 0))`;
      const declared = await sources.declaredPorts();
      const { wanted, problems } = await readWanted(declared);
      const live = wanted.map((one) => one.declared.installationId);
      await tx`delete from exposures ${live.length === 0 ? tx`` : tx`where installation_id not in ${tx(live)}`}`;
      const rows = await readRows(tx);
      for (const one of wanted) await keep(tx, one, rows);
      const exposures = toExposures(wanted, await readRows(tx)) ?? [];
      return { exposures, runIds: runIdsOf(declared), problems };
    });
  }

  return {
    async read() {
      const declared = await sources.declaredPorts();
      const [{ wanted, problems }, rows] = [await readWanted(declared), await readRows(sql)];
      const exposures = rows.length === wanted.length ? toExposures(wanted, rows) : null;
      return exposures === null ? settle() : { exposures, runIds: runIdsOf(declared), problems };
    },
  };
}

const runIdsOf = (declared: readonly DeclaredPort[]): ReadonlySet<string> =>
  new Set(declared.map(({ runId }) => runId));

function wantedOf(
  declared: DeclaredPort,
  place: ClusterPlace | undefined,
  ownHosts: readonly string[],
): readonly Wanted[] {
  const domain = place?.publicDomain ?? null;
  if (place === undefined || domain === null || ownHosts.some((host) => isSameSite(domain, host))) return [];
  const name = declared.node ?? (declared.ownNode === '' ? null : declared.ownNode);
  const node = name === null ? place.nodes[0] : place.nodes.find((other) => other.name === name);
  const target = node === undefined || node.isGivenBack ? null : { node, port: declared.port };
  return [{ declared, place, domain, label: wantedLabel(declared.stackName, place.name), target }];
}

const doorName = ({ address, port }: { readonly address: string; readonly port: number }): string =>
  JSON.stringify([address, port]);

/**
 * Returns why a node's port gets no address. A port of an SSH server of any node is never exposed, whatever a module
 * declares.
 */
async function problemOf({ node, port }: Target, sshPorts: ReadonlySet<string>, doors: Doors): Promise<string | null> {
  if (node.sshPort === port) return "web_port is the port of the node's SSH server";
  if (sshPorts.has(doorName({ address: node.address, port })))
    return 'web_port is the port of the SSH server of a node';
  try {
    await doors.pass(node.address, port);
    return null;
  } catch (error) {
    if (error instanceof ClosedDoorError) return error.message;
    throw error;
  }
}

/** True if a page below the domain could set cookies for the host, or the other way round. */
export function isSameSite(domain: string, host: string): boolean {
  return domain === host || host.endsWith(`.${domain}`) || domain.endsWith(`.${host}`);
}

const targetText = ({ declared, target }: Wanted): string =>
  `${target === null ? '' : target.node.address} ${declared.port} ${declared.node ?? declared.ownNode}`;

const isKept = (one: Wanted, row: Row): boolean => row.domain === one.domain && row.wanted === one.label;

/** Returns null if a row differs from the wanted state. */
function toExposures(wanted: readonly Wanted[], rows: readonly Row[]): readonly Exposure[] | null {
  const byId = new Map(rows.map((row) => [row.installationId, row]));
  const list: Exposure[] = [];
  for (const one of wanted) {
    const { declared, place, target } = one;
    const { installationId, runId, clusterId, path } = declared;
    const row = byId.get(installationId);
    if (row === undefined || !isKept(one, row) || row.runId !== runId || row.target !== targetText(one)) return null;
    const access = declared.access === 'members' || place.access === 'members' ? 'members' : 'public';
    const { organizationId, isSuspended } = place;
    const host = `${row.label}.${row.domain}`;
    list.push({ installationId, runId, clusterId, organizationId, host, path, access, isSuspended, target });
  }
  return list;
}

async function keep(tx: TransactionSql, one: Wanted, rows: readonly Row[]): Promise<void> {
  const { installationId, runId } = one.declared;
  const target = targetText(one);
  const row = rows.find((other) => other.installationId === installationId);
  const label = row !== undefined && isKept(one, row) ? row.label : await freeLabel(tx, one);
  await tx`
    insert into exposures
      (installation_id, run_id, domain, label, wanted, target, status, since, next_probe_at)
    values (${installationId}, ${runId}, ${one.domain}, ${label}, ${one.label}, ${target}, 'pending',
      clock_timestamp(), clock_timestamp())
    on conflict (installation_id) do update set
      domain = excluded.domain, label = excluded.label, wanted = excluded.wanted, run_id = excluded.run_id,
      target = excluded.target, status = excluded.status, since = excluded.since,
      next_probe_at = excluded.next_probe_at
    where (exposures.domain, exposures.label, exposures.wanted, exposures.run_id, exposures.target)
      is distinct from (excluded.domain, excluded.label, excluded.wanted, excluded.run_id, excluded.target)`;
}

async function freeLabel(tx: TransactionSql, { declared, domain, label: wanted }: Wanted): Promise<string> {
  for (const label of labelsFor(wanted, declared.installationId)) {
    const taken = await tx`
      select 1 from exposures
      where domain = ${domain} and label = ${label} and installation_id <> ${declared.installationId}`;
    if (taken.length === 0) return label;
  }
  throw new Error('no free label is left');
}
