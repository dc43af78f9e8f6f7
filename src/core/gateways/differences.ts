import { createHash } from 'node:crypto';
import type { Db } from '#base/database/database.ts';

/** Publishes values that must be equal in all gateways of a database, and finds differences between live gateways. */

/**
 * Published values by kind and name: `{price: {'chat': '0.1 0.05 0.4'}}`. Operators see the values; none is a secret.
 */
export type Published = Readonly<Record<string, Readonly<Record<string, string>>>>;

export interface LiveGateway {
  readonly id: string;
  /** The host name of its machine. */
  readonly host: string;
  readonly version: string;
  /** Null for a gateway of a version that publishes nothing. */
  readonly published: Published | null;
}

/** One name for which live gateways have several values. */
export interface Difference {
  readonly kind: string;
  readonly name: string;
  /**
   * At least two values; null for gateways without this name. Gateways are given by host name and the start of their
   * id.
   */
  readonly values: readonly { readonly value: string | null; readonly gateways: readonly string[] }[];
}

const namesMax = 500;
const everyName = '(all)';

/** Replaces the values of a kind by a single value over all names, if there are more names than a gateway publishes. */
export function bounded(values: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const entries = Object.entries(values).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return entries.length <= namesMax
    ? Object.fromEntries(entries)
    : { [everyName]: fingerprint(JSON.stringify(entries)) };
}

/** Returns the first 12 hex digits of the SHA-256 of a text. */
export function fingerprint(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 12);
}

const labelOf = ({ host, id }: LiveGateway): string => `${host} (${id.slice(0, 8)})`;

/** Compares gateways; those that publish nothing are compared only by version. */
export function findDifferences(live: readonly LiveGateway[]): readonly Difference[] {
  const versions = live.map((gateway) => ({ gateway, all: { version: { '': gateway.version } } as Published }));
  const published = live.flatMap((gateway) =>
    gateway.published === null ? [] : [{ gateway, all: gateway.published }],
  );
  return [...differencesAmong(versions), ...differencesAmong(published)];
}

interface Compared {
  readonly gateway: LiveGateway;
  readonly all: Published;
}

function differencesAmong(compared: readonly Compared[]): readonly Difference[] {
  const kinds = [...new Set(compared.flatMap(({ all }) => Object.keys(all)))].toSorted();
  return kinds.flatMap((kind) => {
    const names = [...new Set(compared.flatMap(({ all }) => Object.keys(all[kind] ?? {})))].toSorted();
    return names.flatMap((name): Difference[] => {
      const byValue = Map.groupBy(compared, ({ all }) => all[kind]?.[name] ?? null);
      if (byValue.size < 2) return [];
      const values = [...byValue].map(([value, those]) => ({
        value,
        gateways: those.map(({ gateway }) => labelOf(gateway)),
      }));
      return [{ kind, name, values }];
    });
  });
}

/**
 * Returns true if a live gateway has, or may have, another value for a name than this gateway. A gateway that lacks the
 * name has no other value; one that publishes nothing may have any.
 */
export function isContested(live: readonly LiveGateway[], own: Published, kind: string, name: string): boolean {
  const mine = own[kind] ?? {};
  return live.some(({ published }) => {
    if (published === null) return true;
    const theirs = published[kind] ?? {};
    if (mine[everyName] !== undefined || theirs[everyName] !== undefined) return mine[everyName] !== theirs[everyName];
    return (theirs[name] ?? mine[name]) !== mine[name];
  });
}

/** Time without a heartbeat after which a gateway counts as dead. */
export const expiresAfterMs = 15_000;

/** Reads the live gateways, oldest start first. */
export async function readLiveGateways({ sql }: Pick<Db, 'sql'>): Promise<readonly LiveGateway[]> {
  return sql<LiveGateway[]>`
    select g.id::text, coalesce(r.host, '?') as host, coalesce(r.version, '?') as version, g.published
    from gateways g left join gateway_runs r on r.id = g.id
    where g.last_seen_at > now() - ${expiresAfterMs}::int * interval '1 ms'
    order by g.started_at, g.id`;
}
