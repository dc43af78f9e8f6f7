import { sql } from 'drizzle-orm';
import { bigint, index, numeric, pgTable, primaryKey, text, timestamp, uniqueIndex, uuid } from 'drizzle-orm/pg-core';

/** Pico-dollars: whole numbers that a bigint column would end at 9.2 M USD. */
const pico = (name: string) => numeric(name, { precision: 38, scale: 0, mode: 'bigint' });
const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });

/** The materialized balance of an organization; the ledger's sum proves it. */
export const wallets = pgTable(
  'wallets',
  {
    organizationId: uuid('organization_id').notNull(),
    currency: text('currency').notNull(),
    balance: pico('balance').notNull(),
    updatedAt: moment('updated_at').notNull(),
  },
  (table) => [primaryKey({ columns: [table.organizationId, table.currency] })],
);

/**
 * Append-only, double-entry: each row moves a positive amount from one account to another, so all accounts together
 * always sum to zero. The wallet's balance is what came in less what went out.
 */
export const ledgerEntries = pgTable(
  'ledger_entries',
  {
    id: uuid('id').primaryKey(),
    /** Given while the wallet's row is locked, so that its order is the order in which balances came about. */
    seq: bigint('seq', { mode: 'number' }).generatedAlwaysAsIdentity(),
    organizationId: uuid('organization_id').notNull(),
    type: text('type', { enum: ['credit', 'usage', 'adjustment'] }).notNull(),
    debitAccount: text('debit_account', { enum: ['wallet', 'funding', 'revenue', 'adjustments'] }).notNull(),
    creditAccount: text('credit_account', { enum: ['wallet', 'funding', 'revenue', 'adjustments'] }).notNull(),
    amount: pico('amount').notNull(),
    currency: text('currency').notNull(),
    /** The wallet's balance once this entry counted. */
    balanceAfter: pico('balance_after').notNull(),
    requestId: uuid('request_id'),
    reference: text('reference'),
    note: text('note'),
    createdAt: moment('created_at').notNull(),
  },
  (table) => [
    index('ledger_entries_organization_idx').on(table.organizationId, table.seq),
    uniqueIndex('ledger_entries_request_key')
      .on(table.requestId)
      .where(sql`${table.requestId} is not null`),
    uniqueIndex('ledger_entries_reference_key')
      .on(table.organizationId, table.reference)
      .where(sql`${table.reference} is not null`),
  ],
);
