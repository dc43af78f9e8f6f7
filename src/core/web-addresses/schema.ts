import { boolean, customType, index, pgTable, text, timestamp, uniqueIndex, uuid } from 'drizzle-orm/pg-core';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date', precision: 3 });
const bytes = customType<{ data: Buffer }>({ dataType: () => 'bytea' });

/** Live web addresses. A row exists as long as its target; its name stays when the stack is applied again. */
export const exposures = pgTable(
  'exposures',
  {
    installationId: uuid('installation_id').primaryKey(),
    /** The last run that declared the port. */
    runId: uuid('run_id').notNull(),
    domain: text('domain').notNull(),
    label: text('label').notNull(),
    /** The wanted label, from which `label` was made. */
    wanted: text('wanted').notNull(),
    /** Node and port of the target; a changed target is probed again. */
    target: text('target').notNull(),
    status: text('status', { enum: ['pending', 'ready', 'unreachable'] }).notNull(),
    /** Time since the address leads to this target. */
    since: moment('since').notNull(),
    nextProbeAt: moment('next_probe_at').notNull(),
  },
  (table) => [
    uniqueIndex('exposures_host_key').on(table.domain, table.label),
    index('exposures_run_idx').on(table.runId),
    index('exposures_probe_idx').on(table.nextProbeAt),
  ],
);

/** Access to addresses for members: links for a single use, and the cookies that they give. */
export const exposureEntrances = pgTable(
  'exposure_entrances',
  {
    /** SHA-256; the secret itself is not stored. */
    hash: bytes('hash').primaryKey(),
    kind: text('kind', { enum: ['link', 'cookie'] }).notNull(),
    installationId: uuid('installation_id')
      .notNull()
      .references(() => exposures.installationId, { onDelete: 'cascade' }),
    /** The holder's key or user. */
    keyId: uuid('key_id'),
    userId: uuid('user_id'),
    /** Session of a holder who opened the address in a browser: the access ends with the session. */
    sessionId: uuid('session_id'),
    organizationId: uuid('organization_id').notNull(),
    isOperator: boolean('is_operator').notNull(),
    expiresAt: moment('expires_at').notNull(),
  },
  (table) => [
    index('exposure_entrances_installation_idx').on(table.installationId),
    index('exposure_entrances_expiry_idx').on(table.expiresAt),
  ],
);
