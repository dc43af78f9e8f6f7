import {
  bigint,
  customType,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uuid,
} from 'drizzle-orm/pg-core';
import { batchEndpoints, type BatchError, batchStatuses } from './batch.ts';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const bytes = customType<{ data: Buffer; driverData: Buffer }>({ dataType: () => 'bytea' });

export const batches = pgTable(
  'batches',
  {
    id: uuid('id').primaryKey(),
    organizationId: uuid('organization_id').notNull(),
    projectId: uuid('project_id').notNull(),
    /** The key that made it, for which all of it is asked. */
    keyId: uuid('key_id').notNull(),
    endpoint: text('endpoint', { enum: batchEndpoints }).notNull(),
    inputFileId: uuid('input_file_id').notNull(),
    model: text('model'),
    metadata: jsonb('metadata').$type<Readonly<Record<string, string>>>(),
    /** How long its output is to be kept; null: as long as files are. */
    outputKeepSeconds: integer('output_keep_seconds'),
    status: text('status', { enum: batchStatuses }).notNull(),
    /** How it ends, once nothing of it is asked any more. */
    ending: text('ending', { enum: ['completed', 'failed', 'expired', 'cancelled'] }),
    errors: jsonb('errors').$type<readonly BatchError[]>().notNull(),
    /** The code of what it waits for; null while it goes on. */
    waitingFor: text('waiting_for'),
    /** Since when it waits for just that. */
    waitingSince: moment('waiting_since'),
    total: integer('total').notNull().default(0),
    completed: integer('completed').notNull().default(0),
    failed: integer('failed').notNull().default(0),
    outputFileId: uuid('output_file_id'),
    errorFileId: uuid('error_file_id'),
    createdAt: moment('created_at').notNull(),
    /** When its window ends. */
    expiresAt: moment('expires_at').notNull(),
    inProgressAt: moment('in_progress_at'),
    finalizingAt: moment('finalizing_at'),
    completedAt: moment('completed_at'),
    failedAt: moment('failed_at'),
    expiredAt: moment('expired_at'),
    cancellingAt: moment('cancelling_at'),
    cancelledAt: moment('cancelled_at'),
    /** The gateway that works at it, until its lease ends; each that takes it over has a higher fence. */
    gatewayId: uuid('gateway_id'),
    leaseUntil: moment('lease_until').notNull(),
    fence: bigint('fence', { mode: 'number' }).notNull().default(0),
    /** It is nobody's turn before. */
    turnAt: moment('turn_at').notNull(),
  },
  (table) => [
    index('batches_organization_idx').on(table.organizationId, table.id),
    index('batches_turn_idx').on(table.status, table.turnAt),
  ],
);

/** What a batch goes on with. */
export const waitsForNothing = { waitingFor: null, waitingSince: null };

/** Its requests, while it runs: where each stands in the input file, and what it was answered. */
export const batchLines = pgTable(
  'batch_lines',
  {
    batchId: uuid('batch_id').notNull(),
    /** From 0, in the order of the file. */
    number: integer('number').notNull(),
    customId: text('custom_id').notNull(),
    /** Of the body in the file, in bytes. */
    bodyAt: bigint('body_at', { mode: 'number' }).notNull(),
    bodyBytes: integer('body_bytes').notNull(),
    state: text('state', { enum: ['pending', 'completed', 'failed'] }).notNull(),
    requestId: text('request_id'),
    statusCode: integer('status_code'),
    /** What was answered, compressed with Zstandard. */
    answer: bytes('answer'),
  },
  (table) => [primaryKey({ columns: [table.batchId, table.number] })],
);
