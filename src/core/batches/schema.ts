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
    /** Key that created the batch, and with which all its requests are sent. */
    keyId: uuid('key_id').notNull(),
    endpoint: text('endpoint', { enum: batchEndpoints }).notNull(),
    inputFileId: uuid('input_file_id').notNull(),
    model: text('model'),
    metadata: jsonb('metadata').$type<Readonly<Record<string, string>>>(),
    /** Seconds to keep the output; null: as long as other files. */
    outputKeepSeconds: integer('output_keep_seconds'),
    status: text('status', { enum: batchStatuses }).notNull(),
    /** Way in which the batch ends, set once no more requests are sent. */
    ending: text('ending', { enum: ['completed', 'failed', 'expired', 'cancelled'] }),
    errors: jsonb('errors').$type<readonly BatchError[]>().notNull(),
    /** Code of what the batch waits for; null while it continues. */
    waitingFor: text('waiting_for'),
    /** Start of the current wait. */
    waitingSince: moment('waiting_since'),
    total: integer('total').notNull().default(0),
    completed: integer('completed').notNull().default(0),
    failed: integer('failed').notNull().default(0),
    outputFileId: uuid('output_file_id'),
    errorFileId: uuid('error_file_id'),
    createdAt: moment('created_at').notNull(),
    /** End of the batch's window. */
    expiresAt: moment('expires_at').notNull(),
    inProgressAt: moment('in_progress_at'),
    finalizingAt: moment('finalizing_at'),
    completedAt: moment('completed_at'),
    failedAt: moment('failed_at'),
    expiredAt: moment('expired_at'),
    cancellingAt: moment('cancelling_at'),
    cancelledAt: moment('cancelled_at'),
    /** Gateway that works on the batch until its lease ends; each gateway that takes the batch increases the fence. */
    gatewayId: uuid('gateway_id'),
    leaseUntil: moment('lease_until').notNull(),
    fence: bigint('fence', { mode: 'number' }).notNull().default(0),
    /** Earliest time of the batch's next turn. */
    turnAt: moment('turn_at').notNull(),
  },
  (table) => [
    index('batches_organization_idx').on(table.organizationId, table.id),
    index('batches_turn_idx').on(table.status, table.turnAt),
  ],
);

/** Fields of a batch that is not waiting. */
export const waitsForNothing = { waitingFor: null, waitingSince: null };

/** Requests of a batch while it runs: their places in the input file, and their answers. */
export const batchLines = pgTable(
  'batch_lines',
  {
    batchId: uuid('batch_id').notNull(),
    /** Number from 0, in the order of the file. */
    number: integer('number').notNull(),
    customId: text('custom_id').notNull(),
    /** Offset of the body in the file, in bytes. */
    bodyAt: bigint('body_at', { mode: 'number' }).notNull(),
    bodyBytes: integer('body_bytes').notNull(),
    state: text('state', { enum: ['pending', 'completed', 'failed'] }).notNull(),
    requestId: text('request_id'),
    statusCode: integer('status_code'),
    /** Answer compressed with Zstandard. */
    answer: bytes('answer'),
  },
  (table) => [primaryKey({ columns: [table.batchId, table.number] })],
);
