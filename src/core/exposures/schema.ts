import { boolean, customType, index, pgTable, text, timestamp, uniqueIndex, uuid } from 'drizzle-orm/pg-core';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date', precision: 3 });
const bytes = customType<{ data: Buffer }>({ dataType: () => 'bytea' });

/** Web addresses that are live. A row is there for as long as what it leads to; its name stays over re-applies. */
export const exposures = pgTable(
  'exposures',
  {
    installationId: uuid('installation_id').primaryKey(),
    /** The run that declared the port last. */
    runId: uuid('run_id').notNull(),
    domain: text('domain').notNull(),
    label: text('label').notNull(),
    /** What the label was made of. */
    wanted: text('wanted').notNull(),
    /** Which port of which node it leads to; another one is probed anew. */
    target: text('target').notNull(),
    status: text('status', { enum: ['pending', 'ready', 'unreachable'] }).notNull(),
    /** When it began to lead there. */
    since: moment('since').notNull(),
    nextProbeAt: moment('next_probe_at').notNull(),
  },
  (table) => [
    uniqueIndex('exposures_host_key').on(table.domain, table.label),
    index('exposures_run_idx').on(table.runId),
    index('exposures_probe_idx').on(table.nextProbeAt),
  ],
);

/** Who may enter an address for members: links that are used once, and the cookies that they give. */
export const exposureEntrances = pgTable(
  'exposure_entrances',
  {
    /** SHA-256; the secret itself is nowhere. */
    hash: bytes('hash').primaryKey(),
    kind: text('kind', { enum: ['link', 'cookie'] }).notNull(),
    installationId: uuid('installation_id')
      .notNull()
      .references(() => exposures.installationId, { onDelete: 'cascade' }),
    /** Whose they are. */
    keyId: uuid('key_id'),
    userId: uuid('user_id'),
    /** Of who opened it from a browser: it ends with the session. */
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
