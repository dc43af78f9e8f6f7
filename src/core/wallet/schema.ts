import { sql } from 'drizzle-orm';
import {
  bigint,
  check,
  customType,
  integer,
  numeric,
  pgEnum,
  pgSequence,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uniqueIndex,
  uuid,
} from 'drizzle-orm/pg-core';

/** Pico-dollars: whole numbers that a bigint column would end at 9.2 M USD. */
const pico = (name: string) => numeric(name, { precision: 38, scale: 0, mode: 'bigint' });
const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const bytes = customType<{ data: Buffer }>({ dataType: () => 'bytea' });

/** The materialized balance of an organization; the ledger's sum proves it. */
export const wallets = pgTable(
  'wallets',
  {
    organizationId: uuid('organization_id').notNull(),
    currency: text('currency').notNull(),
    balance: pico('balance').notNull(),
    updatedAt: moment('updated_at').notNull(),
    /** Number of the newest entry. */
    entries: bigint('entries', { mode: 'number' }).notNull(),
    /** What the chain of entries comes to, see chain.ts. */
    head: bytes('head').notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.organizationId, table.currency] }),
    check('wallets_balance_not_negative', sql`${table.balance} >= 0`),
  ],
);

export const ledgerEntryType = pgEnum('ledger_entry_type', ['credit', 'usage', 'adjustment']);
export const ledgerAccount = pgEnum('ledger_account', ['wallet', 'funding', 'revenue', 'adjustments']);

/** Numbers of groups of requests that one entry stands for. */
export const ledgerGroups = pgSequence('ledger_groups');

/**
 * Append-only, double-entry: each row moves a positive amount from one account to another, so all accounts together
 * always sum to zero. The wallet's balance is what came in less what went out. Columns stand in the order that leaves
 * no gaps between them.
 */
export const ledgerEntries = pgTable(
  'ledger_entries',
  {
    /** Counts an organization's entries from 1 on, given under the lock of its wallet. */
    number: bigint('number', { mode: 'number' }).notNull(),
    createdAt: moment('created_at').notNull(),
    /** Ties a usage entry of several requests to their records; null for one of a single request. */
    groupId: bigint('group_id', { mode: 'number' }),
    /** Requests of a usage entry; null for the other types. */
    requests: integer('requests'),
    type: ledgerEntryType('type').notNull(),
    debitAccount: ledgerAccount('debit_account').notNull(),
    creditAccount: ledgerAccount('credit_account').notNull(),
    organizationId: uuid('organization_id').notNull(),
    /** Of a usage entry in the chain, the id of its first request. */
    id: uuid('id').notNull(),
    amount: pico('amount').notNull(),
    currency: text('currency').notNull(),
    /** The wallet's balance once this entry counted. */
    balanceAfter: pico('balance_after').notNull(),
    /** The wallet's head once this entry counted; null for what was booked before there was a chain. */
    head: bytes('head'),
    /** Of a group, over its requests and their amounts, see chain.ts. */
    requestsHash: bytes('requests_hash'),
    /** Request of a usage entry from before the chain. */
    requestId: uuid('request_id'),
    reference: text('reference'),
    note: text('note'),
  },
  (table) => [
    primaryKey({ columns: [table.organizationId, table.number] }),
    uniqueIndex('ledger_entries_reference_key')
      .on(table.organizationId, table.reference)
      .where(sql`${table.reference} is not null`),
    check(
      'ledger_entries_amount_positive',
      sql`${table.amount} > 0 and ${table.debitAccount} <> ${table.creditAccount}`,
    ),
  ],
);
