import type { ISql } from 'postgres';

/** The part of a settlement about its request's Idempotency-Key. */
export interface SettledClaim {
  readonly keyId: string;
  readonly idempotencyKey: string;
  /** SHA-256 over the route and the body. */
  readonly bodyHash: Buffer;
  /** Time until which the key belongs to this request: ISO 8601, by the database's clock. */
  readonly expiresAt: string;
  /** True if the answer is complete, and repetitions of the request get it. */
  readonly keeps: boolean;
  /** The answer, compressed with Zstandard; null if there is nothing to store, no room, or the row has it already. */
  readonly answer: Buffer | null;
}

export interface ClaimOf {
  readonly requestId: string;
  readonly claim: SettledClaim;
}

/** Maximum compressed bytes of an answer in a record that waits on disk for the database. */
export const carriedAnswerBytesMax = 4_194_304;
/** Larger answers (compressed bytes) are written by a separate statement, in the transaction of the settlement. */
export const inlineAnswerBytesMax = 32_768;

/** Prefix of Idempotency-Keys for the gateway's own requests. No client can send it: clients' keys must be ASCII. */
export const ownKeyMark = '§';

/** Hours that a key belongs to its request, from the admission on. */
const keptHours = 24;
/** The same for the gateway's own keys: a batch may end long after its day, for example if all gateways were down. */
const ownKeptHours = 72;

export const keptHoursOf = (idempotencyKey: string): number =>
  idempotencyKey.startsWith(ownKeyMark) ? ownKeptHours : keptHours;

/** Gateway id of a done row. */
export const nobody = '00000000-0000-0000-0000-000000000000';

const periodOf = (row: string): string =>
  `case when starts_with(${row}.idempotency_key, '${ownKeyMark}') then interval '${ownKeptHours} hours' else interval '${keptHours} hours' end`;
/** Requests with the same key are repetitions of each other if their periods overlap. */
const overlapText = (a: string, b: string): string =>
  `(${a}.expires_at - ${periodOf(b)} < ${b}.expires_at and ${b}.expires_at - ${periodOf(b)} < ${a}.expires_at)`;

/** True if the key belonged to the two requests in different periods. */
export function isOfAnotherTime(a: SettledClaim, b: SettledClaim): boolean {
  const periodMs = keptHoursOf(a.idempotencyKey) * 3_600_000;
  return Math.abs(Date.parse(a.expiresAt) - Date.parse(b.expiresAt)) >= periodMs;
}

const period = periodOf('excluded');
/** A row is taken if it belongs to this request, to an earlier period, or to a running request of the same period. */
const isTaken = `(k.request_id = excluded.request_id or k.expires_at <= excluded.expires_at - ${period}
        or (k.state = 'running' and k.expires_at - ${period} < excluded.expires_at))`;
const ifTaken = (name: string, value = `excluded.${name}`): string =>
  `${name} = case when ${isTaken} then ${value} else k.${name} end`;

/**
 * Writes claims. The upsert waits for other writers of the same key and then sees the newest row, whatever the
 * statement's snapshot saw: exactly one request of a key is the first to be settled. A row that is not taken is written
 * unchanged, so that it is returned. A running row has an answer if the answer was stored before the settlement; a
 * request that takes over the row gets this answer too.
 */
const upsert = (source: string): string => `
      insert into idempotency_keys as k
        (key_id, idempotency_key, body_hash, request_id, gateway_id, state, lease_until, expires_at, answer)
      ${source}
      on conflict (key_id, idempotency_key) do update set ${ifTaken('body_hash')}, ${ifTaken('request_id')},
        ${ifTaken('state', "'done'")}, ${ifTaken('expires_at', 'greatest(k.expires_at, excluded.expires_at)')},
        ${ifTaken('answer', "coalesce(excluded.answer, case when k.request_id = excluded.request_id or k.state = 'running' then k.answer end)")}`;

/** SQL condition: the row belongs to another request than the claim's, in the same period, and is done. */
const isOthers = (row: string): string =>
  `${row}.state = 'done' and ${row}.request_id <> c.id and ${overlapText(row, 'c')}`;

/**
 * Parts of a WITH clause, with a parameter of `claimsParameter`; all claims of a key must be of the same period. The
 * parts store the answers under their Idempotency-Keys. `repeated (id)` are the requests of keys that were answered by
 * another request: they must not be charged. A request that settles after its key expired stores no answer. Rows are
 * looked up one by one, because PostgreSQL may turn an EXISTS into a hash of all keys.
 * @param without a part `(id)` of the same clause: requests whose claims change nothing
 */
export function claimsText(parameter: string, without: string): string {
  const source = `select distinct on (key_id, idempotency_key) key_id, idempotency_key, decode(body_hash, 'base64'), id,
        '${nobody}'::uuid, 'done', now(), expires_at, case when expires_at > now() then decode(answer, 'base64') end
      from claims where keeps order by key_id, idempotency_key, id`;
  return `
    claims as materialized (
      select * from json_to_recordset(${parameter}::text::json) as t(id uuid, key_id uuid, idempotency_key text,
        body_hash text, expires_at timestamptz, keeps boolean, answer text)
      where id not in (select id from ${without})
    ), settled as (${upsert(source)}
      returning key_id, idempotency_key, request_id, state, expires_at
    ), repeated as materialized (
      select id from claims c where coalesce((
        select ${isOthers('s')} from settled s where s.key_id = c.key_id and s.idempotency_key = c.idempotency_key), (
        select ${isOthers('k')} from idempotency_keys k
        where k.key_id = c.key_id and k.idempotency_key = c.idempotency_key))
    )`;
}

/** Returns the parameter of `claimsText`, without the answers that `putAnswer` writes. */
export function claimsParameter(claims: readonly ClaimOf[]): string {
  return JSON.stringify(
    claims.map(({ requestId, claim }) => ({
      id: requestId,
      key_id: claim.keyId,
      idempotency_key: claim.idempotencyKey,
      body_hash: claim.bodyHash.toString('base64'),
      expires_at: claim.expiresAt,
      keeps: claim.keeps,
      answer: isLarge(claim) ? null : (claim.answer?.toString('base64') ?? null),
    })),
  );
}

/**
 * Decides, for the rest of the transaction, which requests their Idempotency-Keys belong to.
 * @returns ids of the other requests, which must not be charged
 */
export async function putClaims(tx: ISql, claims: readonly ClaimOf[]): Promise<readonly string[]> {
  for (const claim of claims) if (isLarge(claim.claim)) await putAnswer(tx, claim);
  const text = `with nobodys as (select null::uuid as id where false), ${claimsText('$1', 'nobodys')} select id::text from repeated`;
  const rows = await tx.unsafe<{ id: string }[]>(text, [claimsParameter(claims)]);
  return rows.map(({ id }) => id);
}

export function isLarge({ answer }: SettledClaim): boolean {
  return answer !== null && answer.length > inlineAnswerBytesMax;
}

/** Writes a large answer in the transaction of the settlement, before the settlement itself. */
export async function putAnswer(tx: ISql, { requestId, claim }: ClaimOf): Promise<void> {
  const { keyId, idempotencyKey, bodyHash, expiresAt, answer } = claim;
  const source = `select $1::uuid, $2::text, $3::bytea, $4::uuid, '${nobody}'::uuid, 'done', now(), $5::timestamptz,
        $6::bytea where $5::timestamptz > now()`;
  await tx.unsafe(upsert(source), [keyId, idempotencyKey, bodyHash, requestId, expiresAt, answer]);
}
