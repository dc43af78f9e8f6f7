import { sql } from 'drizzle-orm';
import {
  bigint,
  check,
  customType,
  index,
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

/** Pico-dollars, as whole numbers: a bigint column would overflow at 9.2 M USD. */
const pico = (name: string) => numeric(name, { precision: 38, scale: 0, mode: 'bigint' });
const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const bytes = customType<{ data: Buffer }>({ dataType: () => 'bytea' });

/** The stored balance of an organization; the sum of the ledger proves it. */
export const wallets = pgTable(
  'wallets',
  {
    organizationId: uuid('organization_id').notNull(),
    currency: text('currency').notNull(),
    balance: pico('balance').notNull(),
    updatedAt: moment('updated_at').notNull(),
    /** Number of the newest entry. */
    entries: bigint('entries', { mode: 'number' }).notNull(),
    /** Head of the chain of entries, see chain.ts. */
    head: bytes('head').notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.organizationId, table.currency] }),
    check('wallets_balance_not_negative', sql`${table.balance} >= 0`),
  ],
);

export const ledgerEntryType = pgEnum('ledger_entry_type', ['credit', 'usage', 'adjustment']);
export const ledgerAccount = pgEnum('ledger_account', ['wallet', 'funding', 'revenue', 'adjustments']);

/** Group numbers of usage entries for several requests. */
export const ledgerGroups = pgSequence('ledger_groups');

/**
 * Append-only, double-entry ledger: each row moves a positive amount from one account to another, so all accounts
 * together always sum to zero. The wallet's balance is the sum of incoming minus outgoing amounts. The order of the
 * columns avoids alignment gaps.
 */
export const ledgerEntries = pgTable(
  'ledger_entries',
  {
    /** Number of the entry in the organization's ledger, from 1 on; assigned under the wallet's lock. */
    number: bigint('number', { mode: 'number' }).notNull(),
    createdAt: moment('created_at').notNull(),
    /** Ties a usage entry for several requests to their records; null for a single request. */
    groupId: bigint('group_id', { mode: 'number' }),
    /** Number of requests of a usage entry; null for the other types. */
    requests: integer('requests'),
    type: ledgerEntryType('type').notNull(),
    debitAccount: ledgerAccount('debit_account').notNull(),
    creditAccount: ledgerAccount('credit_account').notNull(),
    organizationId: uuid('organization_id').notNull(),
    /** Id of the entry; for a usage entry in the chain, the id of its first request. */
    id: uuid('id').notNull(),
    amount: pico('amount').notNull(),
    currency: text('currency').notNull(),
    /** The wallet's balance after this entry. */
    balanceAfter: pico('balance_after').notNull(),
    /** The wallet's head after this entry; null for entries from before the chain. */
    head: bytes('head'),
    /** Hash over a group's requests and their amounts, see chain.ts. */
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
    /** Finds the few credits and adjustments among millions of usage entries. */
    index('ledger_entries_changes_idx')
      .on(table.organizationId, table.number)
      .where(sql`${table.type} <> 'usage'`),
    check(
      'ledger_entries_amount_positive',
      sql`${table.amount} > 0 and ${table.debitAccount} <> ${table.creditAccount}`,
    ),
  ],
);
