import { type SQL, sql } from 'drizzle-orm';
import {
  type AnyPgColumn,
  bigint,
  boolean,
  customType,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
  uniqueIndex,
  uuid,
} from 'drizzle-orm/pg-core';
import { activeStatuses, failureCodes, runAccess, runOperations, runStatuses } from './run-status.ts';
import { sealMarkBytes } from './sources.ts';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date', precision: 3 });
const bytes = customType<{ data: Buffer }>({ dataType: () => 'bytea' });
/** What was sealed names its key first: what an older key sealed is found by it. */
const sealMark = (column: AnyPgColumn): SQL => sql`substr(${column}, 1, ${sql.raw(String(sealMarkBytes))})`;
const isActive = sql.raw(activeStatuses.map((status) => `'${status}'`).join(', '));

/** What a stack is on a cluster, or on one of its nodes: the state of Terraform, over all its runs. */
export const installations = pgTable(
  'installations',
  {
    id: uuid('id').primaryKey(),
    clusterId: uuid('cluster_id').notNull(),
    stackId: uuid('stack_id').notNull(),
    /** By the name of its time. */
    stackName: text('stack_name').notNull(),
    /** A node's name; empty for the whole cluster. */
    node: text('node').notNull(),
    createdAt: moment('created_at').notNull(),
    /** When its node was taken out of the cluster: a later node of the same name is another machine. */
    retiredAt: moment('retired_at'),
  },
  (table) => [
    uniqueIndex('installations_key')
      .on(table.clusterId, table.stackId, table.node)
      .where(sql`${table.retiredAt} is null`),
  ],
);

export const runs = pgTable(
  'runs',
  {
    /** UUIDv7: runs of a cluster begin in the order of their ids. */
    id: uuid('id').primaryKey(),
    installationId: uuid('installation_id')
      .notNull()
      .references(() => installations.id),
    clusterId: uuid('cluster_id').notNull(),
    organizationId: uuid('organization_id').notNull(),
    stackVersionId: uuid('stack_version_id').notNull(),
    operation: text('operation', { enum: runOperations }).notNull(),
    status: text('status', { enum: runStatuses }).notNull(),
    failureCode: text('failure_code', { enum: failureCodes }),
    /** One sentence, without secrets. */
    failureMessage: text('failure_message'),
    /** Sealed JSON: inputs may be secrets. */
    inputs: bytes('inputs').notNull(),
    /** The run that it repeats. */
    retryOf: uuid('retry_of'),
    /** Only the version before writes it, while gateways are replaced one after the other: a later migration drops it. */
    once: text('once'),
    /** Of a user or a key; null for the gateway itself. */
    createdByUser: uuid('created_by_user'),
    createdByKey: uuid('created_by_key'),
    createdAt: moment('created_at').notNull(),
    startedAt: moment('started_at'),
    endedAt: moment('ended_at'),
    /** Why it was asked to end: somebody wanted it, or a phase took too long. */
    cancelReason: text('cancel_reason', { enum: ['asked', 'timeout', 'cluster_gone'] }),
    /** Where it runs: only gateways that reach the place can go on with it. */
    place: text('place'),
    /** The gateway that claimed it last, by what stays the same when it is started again. */
    holder: uuid('holder'),
    /** Grows whenever somebody takes the run over; who holds an older number writes nothing more. */
    fence: integer('fence').notNull().default(0),
    leaseUntil: moment('lease_until'),
    /** The phase that was begun last, and when. */
    phase: text('phase'),
    phaseStartedAt: moment('phase_started_at'),
    /** Whether it holds its version of the stack, which goes when nobody does. */
    holdsVersion: boolean('holds_version').notNull().default(true),
    /** Whether its work folder has a state that is not on record: what it made is known nowhere else. */
    leftState: boolean('left_state').notNull().default(false),
    /** When somebody said that what it has made, and left, is nothing to be kept. */
    forgottenAt: moment('forgotten_at'),
    prepared: boolean('prepared').notNull().default(false),
    /** Bytes of the phase's output that are in the log. */
    logOffset: bigint('log_offset', { mode: 'number' }).notNull().default(0),
    logLines: integer('log_lines').notNull().default(0),
    logBytes: integer('log_bytes').notNull().default(0),
    /** `{operation, add, change, remove}` of the plan, then of what was done. */
    changes: jsonb('changes'),
    /** Those that are not sensitive with their values, the others without. */
    outputs: jsonb('outputs'),
    /** `{port, node, path}` of the web port that it declares. */
    web: jsonb('web'),
    /** Why what it declares is no web port; one sentence. */
    webProblem: text('web_problem'),
    /** Who may use its web address. */
    access: text('access', { enum: runAccess }).notNull().default('public'),
  },
  (table) => [
    uniqueIndex('runs_active_key')
      .on(table.clusterId)
      .where(sql`${table.status} in (${isActive})`),
    uniqueIndex('runs_once_key')
      .on(table.clusterId, table.once)
      .where(sql`${table.once} is not null`),
    index('runs_pending_idx')
      .on(table.clusterId, table.id)
      .where(sql`${table.status} = 'PENDING'`),
    index('runs_cluster_idx').on(table.clusterId, table.id),
    index('runs_organization_idx').on(table.organizationId, table.id),
    index('runs_installation_idx').on(table.installationId, table.id),
    index('runs_holding_idx')
      .on(table.installationId, table.id)
      .where(sql`${table.holdsVersion}`),
    index('runs_inputs_key_idx').on(sealMark(table.inputs)),
    index('runs_web_idx')
      .on(table.id)
      .where(sql`${table.status} = 'APPLIED' and ${table.web} is not null`),
  ],
);

export const runLog = pgTable(
  'run_log',
  {
    runId: uuid('run_id')
      .notNull()
      .references(() => runs.id, { onDelete: 'cascade' }),
    /** From 1, without a gap. */
    seq: integer('seq').notNull(),
    at: moment('at').notNull(),
    phase: text('phase').notNull(),
    level: text('level', { enum: ['info', 'warn', 'error'] }).notNull(),
    type: text('type').notNull(),
    message: text('message').notNull(),
  },
  (table) => [primaryKey({ columns: [table.runId, table.seq] })],
);

/** Terraform's state of an installation, newest `serial` last; sealed, since it holds secrets in clear. */
export const stackStates = pgTable(
  'stack_states',
  {
    installationId: uuid('installation_id')
      .notNull()
      .references(() => installations.id),
    serial: bigint('serial', { mode: 'number' }).notNull(),
    lineage: text('lineage').notNull(),
    runId: uuid('run_id').notNull(),
    /** Resources that it has; without any there is nothing to destroy. */
    resources: integer('resources').notNull(),
    state: bytes('state').notNull(),
    /** `.terraform.lock.hcl`: later runs use the same providers. */
    lockFile: bytes('lock_file'),
    createdAt: moment('created_at').notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.installationId, table.serial] }),
    index('stack_states_key_idx').on(sealMark(table.state)),
  ],
);
