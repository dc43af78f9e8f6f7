import { createHash, randomBytes } from 'node:crypto';
import type { Sql } from 'postgres';
import type { Holder } from './types.ts';

/** Lifetime of an unused link; `cookieSeconds`: lifetime of the cookie that a used link gives. */
export const linkSeconds = 60;
export const cookieSeconds = 8 * 3600;

/** A valid cookie. */
export interface Entrance {
  readonly holder: Holder;
  /** Time when the cookie ends, by itself or with its holder's key or session; Unix milliseconds. */
  readonly expiresAtMs: number;
}

/** Links and cookies. Only their hashes are stored; all of them end with their address. */
export interface Entrances {
  /** @returns a secret for a single use, or null if the address no longer exists */
  makeLink(installationId: string, holder: Holder): Promise<string | null>;
  /** @returns the secret of a cookie; null for a link that was used, is too old, or belongs to another address */
  useLink(installationId: string, secret: string): Promise<(Entrance & { readonly secret: string }) | null>;
  find(installationId: string, secret: string): Promise<Entrance | null>;
}

interface Row {
  readonly keyId: string | null;
  readonly userId: string | null;
  readonly sessionId: string | null;
  readonly organizationId: string;
  readonly isOperator: boolean;
  readonly expiresAtMs: number;
}

const hashOf = (secret: string): Buffer => createHash('sha256').update(secret).digest();
/** Format of secrets; other texts are not looked up. */
const secretPattern = /^[A-Za-z0-9_-]{43}$/;
const makeSecret = (): string => randomBytes(32).toString('base64url');

export function createEntrances(sql: Sql): Entrances {
  const columns = sql`key_id as "keyId", user_id as "userId", session_id as "sessionId", organization_id as "organizationId",
    is_operator as "isOperator", floor(extract(epoch from expires_at) * 1000)::float8 as "expiresAtMs"`;
  const toEntrance = ({ expiresAtMs, ...holder }: Row): Entrance => ({ holder, expiresAtMs });

  async function insert(kind: 'link' | 'cookie', installationId: string, holder: Holder) {
    const secret = makeSecret();
    const seconds = kind === 'link' ? linkSeconds : cookieSeconds;
    // The address may be deleted at this moment, which also deletes its links and cookies.
    const [row] = await sql<Row[]>`
      insert into exposure_entrances
        (hash, kind, installation_id, key_id, user_id, session_id, organization_id, is_operator, expires_at)
      select ${hashOf(secret)}, ${kind}, installation_id, ${holder.keyId}::uuid, ${holder.userId}::uuid,
        ${holder.sessionId}::uuid, ${holder.organizationId}::uuid, ${holder.isOperator}, clock_timestamp() + make_interval(secs => ${seconds})
      from exposures where installation_id = ${installationId} for share
      returning ${columns}`;
    return row === undefined ? null : { ...toEntrance(row), secret };
  }

  return {
    async makeLink(installationId, holder) {
      await sql`delete from exposure_entrances where expires_at < clock_timestamp()`;
      return (await insert('link', installationId, holder))?.secret ?? null;
    },
    async useLink(installationId, secret) {
      if (!secretPattern.test(secret)) return null;
      const [row] = await sql<Row[]>`
        delete from exposure_entrances
        where hash = ${hashOf(secret)} and kind = 'link' and installation_id = ${installationId}
          and expires_at > clock_timestamp()
        returning ${columns}`;
      return row === undefined ? null : insert('cookie', installationId, toEntrance(row).holder);
    },
    async find(installationId, secret) {
      if (!secretPattern.test(secret)) return null;
      const [row] = await sql<Row[]>`
        select ${columns} from exposure_entrances
        where hash = ${hashOf(secret)} and kind = 'cookie' and installation_id = ${installationId}
          and expires_at > clock_timestamp()`;
      return row === undefined ? null : toEntrance(row);
    },
  };
}
