import type { ISql } from 'postgres';

/** What a settlement says of the Idempotency-Key of its request. */
export interface SettledClaim {
  readonly keyId: string;
  readonly idempotencyKey: string;
  /** SHA-256 over the route and the body. */
  readonly bodyHash: Buffer;
  /** Until when the key stands for this request: ISO 8601, by the database's clock. */
  readonly expiresAt: string;
  /** The answer is complete, and given to whoever repeats the request. */
  readonly keeps: boolean;
  /** The answer, compressed with Zstandard; null where there is none to keep, no room for it, or the row has it. */
  readonly answer: Buffer | null;
}

export interface ClaimOf {
  readonly requestId: string;
  readonly claim: SettledClaim;
}

/** A record that waits on disk for the database carries no answer of more compressed bytes. */
export const carriedAnswerBytesMax = 4_194_304;
/** An answer of more compressed bytes is written by a statement of its own, in the transaction of its settlement. */
export const inlineAnswerBytesMax = 32_768;

/** Idempotency-Keys of what the gateway itself asks begin with it: no client can send it, which is held to ASCII. */
export const ownKeyMark = '§';

/** A key stands for its request for so long, from when that was let in. */
const keptHours = 24;
/** One of the gateway's own: a batch may be ended long after its day, as where every gateway was down meanwhile. */
const ownKeptHours = 72;

export const keptHoursOf = (idempotencyKey: string): number =>
  idempotencyKey.startsWith(ownKeyMark) ? ownKeptHours : keptHours;

/** A done row runs nowhere. */
export const nobody = '00000000-0000-0000-0000-000000000000';

const periodOf = (row: string): string =>
  `case when starts_with(${row}.idempotency_key, '${ownKeyMark}') then interval '${ownKeptHours} hours' else interval '${keptHours} hours' end`;
/** Requests of a key are repeats of each other where the times overlap in which it stands for them. */
const overlapText = (a: string, b: string): string =>
  `(${a}.expires_at - ${periodOf(b)} < ${b}.expires_at and ${b}.expires_at - ${periodOf(b)} < ${a}.expires_at)`;

/** Whether their key stood for one request and, at another time, for the other. */
export function isOfAnotherTime(a: SettledClaim, b: SettledClaim): boolean {
  const periodMs = keptHoursOf(a.idempotencyKey) * 3_600_000;
  return Math.abs(Date.parse(a.expiresAt) - Date.parse(b.expiresAt)) >= periodMs;
}

const period = periodOf('excluded');
/** A row is taken where it is of this request, of an earlier time, or of the same time and only running. */
const isTaken = `(k.request_id = excluded.request_id or k.expires_at <= excluded.expires_at - ${period}
        or (k.state = 'running' and k.expires_at - ${period} < excluded.expires_at))`;
const ifTaken = (name: string, value = `excluded.${name}`): string =>
  `${name} = case when ${isTaken} then ${value} else k.${name} end`;

/**
 * The upsert waits for whoever writes the same key and then sees its newest row, whatever the statement's snapshot saw:
 * of all requests of a key one is the first to be settled. A row that is not taken is written as it was, so that it can
 * be returned. One that runs has an answer where that is kept ahead of its settlement, which whoever takes it over has
 * as well.
 */
const upsert = (source: string): string => `
      insert into idempotency_keys as k
        (key_id, idempotency_key, body_hash, request_id, gateway_id, state, lease_until, expires_at, answer)
      ${source}
      on conflict (key_id, idempotency_key) do update set ${ifTaken('body_hash')}, ${ifTaken('request_id')},
        ${ifTaken('state', "'done'")}, ${ifTaken('expires_at', 'greatest(k.expires_at, excluded.expires_at)')},
        ${ifTaken('answer', "coalesce(excluded.answer, case when k.request_id = excluded.request_id or k.state = 'running' then k.answer end)")}`;

/** Whether a row is that of another request than the claim's, of the same time, and done. */
const isOthers = (row: string): string =>
  `${row}.state = 'done' and ${row}.request_id <> c.id and ${overlapText(row, 'c')}`;

/**
 * Parts of a WITH clause, with a parameter of `claimsParameter`, in which the claims of a key are all of the same time.
 * Answers become those of their Idempotency-Keys, and `repeated (id)` are the requests of keys whose answer is another
 * request's: they are not to be charged. A request that is settled when its key has expired keeps no answer. Rows are
 * looked up one by one: an EXISTS may be made a table of all keys there are.
 * @param without a part `(id)` of the same clause: requests whose claims are to change nothing
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

/** Without the answers that `putAnswer` writes. */
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
 * Decides, for the rest of the transaction, which requests are those of their Idempotency-Keys.
 * @returns ids of the others, which are not to be charged
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

/** Writes a large answer; in the transaction of the settlement, before it. */
export async function putAnswer(tx: ISql, { requestId, claim }: ClaimOf): Promise<void> {
  const { keyId, idempotencyKey, bodyHash, expiresAt, answer } = claim;
  const source = `select $1::uuid, $2::text, $3::bytea, $4::uuid, '${nobody}'::uuid, 'done', now(), $5::timestamptz,
        $6::bytea where $5::timestamptz > now()`;
  await tx.unsafe(upsert(source), [keyId, idempotencyKey, bodyHash, requestId, expiresAt, answer]);
}
