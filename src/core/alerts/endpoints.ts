import { and, count, desc, eq, lt } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { uuidv7 } from '#base/id.ts';
import type { Accounts } from '#core/accounts/accounts.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import type { Secrets } from '#core/secrets/secrets.ts';
import { type AddressRule, problemOfUrl } from './address.ts';
import {
  type ChangeContext,
  type Endpoint,
  type EndpointRef,
  type EndpointRow,
  giveUpPending,
  isEndpoint,
  purposeOf,
  recordEndpoint,
  toEndpoint,
} from './endpoint.ts';
import { chosenTypes } from './kinds.ts';
import { webhookEndpoints } from './schema.ts';
import { makeWebhookSecret } from './secret.ts';

export interface NewEndpoint {
  readonly organizationId: string;
  readonly url: string;
  readonly description: string;
  readonly events: readonly string[] | null;
  readonly enabled: boolean;
}

/** Fields to change. Absent and undefined fields stay unchanged. */
export interface EndpointPatch {
  readonly url?: string | undefined;
  readonly description?: string | undefined;
  readonly events?: readonly string[] | null | undefined;
  readonly enabled?: boolean | undefined;
}

export interface EndpointWithSecret {
  readonly endpoint: Endpoint;
  /** Secret `whsec_…`, shown once. */
  readonly secret: string;
}

export interface EndpointListing {
  readonly organizationId: string;
  readonly limit: number;
  /** UUID of the last endpoint of the previous page; null starts at the first. */
  readonly before: string | null;
}

export interface EndpointRotation {
  readonly graceMs: number;
  /** Time of the last rotation as the caller knows it, in seconds since the Unix epoch; absent skips the check. */
  readonly rotatedAt?: number | null | undefined;
}

/** Manages the webhook endpoints of organizations. */
export interface Endpoints {
  /** Lists endpoints, newest first. */
  list(listing: EndpointListing): Promise<{ readonly endpoints: readonly Endpoint[]; readonly more: boolean }>;
  find(ref: EndpointRef): Promise<Endpoint | null>;
  /**
   * @throws AppError invalid_value for an address that is not allowed and for unknown kinds; conflict for a closed
   *   organization and for one that has reached its limit; secrets_unavailable
   */
  create(input: NewEndpoint, author: Author): Promise<EndpointWithSecret>;
  /**
   * Returns null if there is no such endpoint. Enabling an endpoint resets its failures. @throws AppError invalid_value
   */
  patch(ref: EndpointRef, patch: EndpointPatch, author: Author): Promise<Endpoint | null>;
  /**
   * Replaces the secret of an endpoint; the current one also signs for `graceMs`, an earlier one no longer. Null if
   * there is no such endpoint. @throws AppError secrets_unavailable; conflict if it was rotated in the meantime
   */
  rotate(ref: EndpointRef, rotation: EndpointRotation, author: Author): Promise<EndpointWithSecret | null>;
  /**
   * Deletes an endpoint with all its deliveries; results of those under way are not recorded. False if there is none.
   */
  remove(ref: EndpointRef, author: Author): Promise<boolean>;
}

export interface EndpointsOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly secrets: Secrets;
  readonly accounts: Pick<Accounts, 'lockOrganization'>;
  readonly rule: AddressRule;
  /** Most endpoints of one organization. */
  readonly endpointsMax: number;
}

/** @throws AppError invalid_value */
function requireAllowed(rule: AddressRule, { url, events }: EndpointPatch): void {
  const problem = url === undefined ? null : problemOfUrl(rule, url);
  if (problem !== null) throw new AppError('invalid_value', { message: `url: ${problem}.`, param: 'url' });
  const unknown = (events ?? []).find((type) => !chosenTypes.some((known) => known === type));
  if (unknown === undefined) return;
  throw new AppError('invalid_value', {
    message: `events: unknown event ${JSON.stringify(unknown)}. Use ${chosenTypes.join(', ')}.`,
    param: 'events',
  });
}

/** @throws AppError not_found, conflict */
async function requireRoom(
  tx: Transaction,
  { accounts, endpointsMax }: EndpointsOptions,
  organizationId: string,
): Promise<void> {
  // The organization's row is locked: of two simultaneous creations, the second counts the first.
  const organization = await accounts.lockOrganization(tx, organizationId);
  if (organization === null) throw new AppError('not_found', { message: 'There is no such organization.' });
  if (organization.status === 'closed') {
    throw new AppError('conflict', { message: 'This organization is closed and accepts no new webhooks.' });
  }
  const [counted] = await tx
    .select({ total: count() })
    .from(webhookEndpoints)
    .where(eq(webhookEndpoints.organizationId, organizationId));
  const total = counted?.total ?? 0;
  if (total < endpointsMax) return;
  const message =
    endpointsMax === 0
      ? 'Webhooks are disabled on this gateway (HEADGATE_MAX_WEBHOOKS is 0).'
      : `The organization has ${total} webhooks; the limit is ${endpointsMax}. Delete one first.`;
  throw new AppError('conflict', { message, reason: 'HEADGATE_MAX_WEBHOOKS' });
}

export function createEndpoints(options: EndpointsOptions): Endpoints {
  const { db, clock, audit, secrets, rule } = options;
  const inside = (tx: Transaction): ChangeContext => ({ tx, audit, now: new Date(clock.now()) });
  const shown = (row: EndpointRow): Endpoint => toEndpoint(row, clock.now());
  return {
    async list({ organizationId, limit, before }) {
      const rows = await db.orm
        .select()
        .from(webhookEndpoints)
        .where(
          and(
            eq(webhookEndpoints.organizationId, organizationId),
            before === null ? undefined : lt(webhookEndpoints.id, before),
          ),
        )
        .orderBy(desc(webhookEndpoints.id))
        .limit(limit + 1);
      return { endpoints: rows.slice(0, limit).map(shown), more: rows.length > limit };
    },
    async find(ref) {
      const [row] = await db.orm.select().from(webhookEndpoints).where(isEndpoint(ref));
      return row === undefined ? null : shown(row);
    },
    async create(input, author) {
      requireAllowed(rule, input);
      return db.orm.transaction(async (tx) => {
        await requireRoom(tx, options, input.organizationId);
        const { row, secret } = await insert(inside(tx), secrets, input, author);
        return { endpoint: shown(row), secret };
      });
    },
    async patch(ref, patch, author) {
      requireAllowed(rule, patch);
      const row = await db.orm.transaction((tx) => update(inside(tx), ref, patch, author));
      return row === null ? null : shown(row);
    },
    async rotate(ref, rotation, author) {
      const made = await db.orm.transaction((tx) => rotate(inside(tx), secrets, { ...ref, ...rotation }, author));
      return made === null ? null : { endpoint: shown(made.row), secret: made.secret };
    },
    remove: (ref, author) =>
      db.orm.transaction(async (tx) => {
        const [before] = await tx.delete(webhookEndpoints).where(isEndpoint(ref)).returning();
        if (before === undefined) return false;
        await recordEndpoint(inside(tx), 'deleted', { before, after: null }, author);
        return true;
      }),
  };
}

interface Made {
  readonly row: EndpointRow;
  readonly secret: string;
}

async function insert(context: ChangeContext, secrets: Secrets, input: NewEndpoint, author: Author): Promise<Made> {
  const { tx, now } = context;
  const id = uuidv7(now.getTime());
  const secret = makeWebhookSecret();
  const sealed = await secrets.seal(tx, purposeOf(id), secret);
  const values = { ...input, id, secretKeyId: sealed.keyId, secretSealed: sealed.bytes, createdAt: now };
  const [row] = await tx.insert(webhookEndpoints).values(values).returning();
  if (row === undefined) throw new Error('an endpoint was not inserted');
  await recordEndpoint(context, 'created', { before: null, after: row }, author);
  return { row, secret };
}

async function lock({ tx }: ChangeContext, ref: EndpointRef): Promise<EndpointRow | null> {
  const [row] = await tx.select().from(webhookEndpoints).where(isEndpoint(ref)).for('update');
  return row ?? null;
}

const begunAnew = { disabledReason: null, failingSince: null, failures: 0 } as const;

async function update(
  context: ChangeContext,
  ref: EndpointRef,
  patch: EndpointPatch,
  author: Author,
): Promise<EndpointRow | null> {
  const before = await lock(context, ref);
  if (before === null || Object.values(patch).every((value) => value === undefined)) return before;
  // Failures are reset for a new URL, and for an endpoint that somebody has just enabled.
  const isNew = (patch.url ?? before.url) !== before.url || (patch.enabled === true && !before.enabled);
  const [after] = await context.tx
    .update(webhookEndpoints)
    .set({ ...patch, ...(isNew && begunAnew) })
    .where(isEndpoint(ref))
    .returning();
  if (after === undefined) throw new Error('a locked row was not updated');
  if (!after.enabled) await giveUpPending(context, after.id);
  await recordEndpoint(context, 'changed', { before, after }, author);
  return after;
}

async function rotate(
  context: ChangeContext,
  secrets: Secrets,
  { graceMs, rotatedAt, ...ref }: EndpointRef & EndpointRotation,
  author: Author,
): Promise<Made | null> {
  const { tx, now } = context;
  const before = await lock(context, ref);
  if (before === null) return null;
  requireLastRotation(before, rotatedAt);
  const secret = makeWebhookSecret();
  const sealed = await secrets.seal(tx, purposeOf(before.id), secret);
  const isKept = graceMs > 0;
  const [row] = await tx
    .update(webhookEndpoints)
    .set({
      secretKeyId: sealed.keyId,
      secretSealed: sealed.bytes,
      formerKeyId: isKept ? before.secretKeyId : null,
      formerSealed: isKept ? before.secretSealed : null,
      formerEndsAt: isKept ? new Date(now.getTime() + graceMs) : null,
      rotatedAt: now,
    })
    .where(isEndpoint(ref))
    .returning();
  if (row === undefined) throw new Error('a locked row was not updated');
  await recordEndpoint(context, 'rotated', { before, after: row }, author);
  return { row, secret };
}

/** Rejects the second of two simultaneous rotations: its caller does not know the first. */
function requireLastRotation({ rotatedAt: at }: EndpointRow, known: number | null | undefined): void {
  const last = at === null ? null : Math.floor(at.getTime() / 1000);
  if (known === undefined || known === last) return;
  const message =
    'Not rotated: the secret of this webhook has changed since "secret_rotated_at". Read the webhook again first.';
  throw new AppError('conflict', { message, param: 'secret_rotated_at' });
}
