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
import {
  activeStatuses,
  failureCodes,
  runAccess,
  runModes,
  runOperations,
  runOrigins,
  runStatuses,
  sealMarkBytes,
} from '#core/runs/lifecycle/lifecycle.ts';

const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date', precision: 3 });
const bytes = customType<{ data: Buffer }>({ dataType: () => 'bytea' });
/** The beginning of an encrypted value, which names its key: values of an older key are found by it. */
const sealMark = (column: AnyPgColumn): SQL => sql`substr(${column}, 1, ${sql.raw(String(sealMarkBytes))})`;
const isActive = sql.raw(activeStatuses.map((status) => `'${status}'`).join(', '));

/** A stack on a cluster, or on one of its nodes: the state of Terraform, across all its runs. */
export const installations = pgTable(
  'installations',
  {
    id: uuid('id').primaryKey(),
    clusterId: uuid('cluster_id').notNull(),
    stackId: uuid('stack_id').notNull(),
    /** The name at the time of the last apply. */
    stackName: text('stack_name').notNull(),
    /** A node's name; empty for the whole cluster. */
    node: text('node').notNull(),
    createdAt: moment('created_at').notNull(),
    /** When its node was removed from the cluster: a later node of the same name is another machine. */
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
    /** UUIDv7: runs of a cluster start in the order of their ids. */
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
    /** Encrypted JSON: inputs may be secrets. */
    inputs: bytes('inputs').notNull(),
    /** The run that this run repeats. */
    retryOf: uuid('retry_of'),
    /**
     * Written only by the previous version, while gateways are replaced one by one. A later migration drops the column.
     */
    once: text('once'),
    /** Number of the stack's version. Null for runs of earlier versions of Headgate. */
    stackVersion: integer('stack_version'),
    /** Inputs by name: `{sensitive, set, value}`, where only values that are not sensitive are shown. */
    shownInputs: jsonb('shown_inputs'),
    /** The program that requested the run. */
    origin: text('origin', { enum: runOrigins }),
    mode: text('mode', { enum: runModes }).notNull().default('auto'),
    /** When the plan was ready for somebody to look at, and when somebody confirmed it. */
    plannedAt: moment('planned_at'),
    confirmedAt: moment('confirmed_at'),
    /** The user or key that created the run; both null for the gateway itself. */
    createdByUser: uuid('created_by_user'),
    createdByKey: uuid('created_by_key'),
    createdAt: moment('created_at').notNull(),
    startedAt: moment('started_at'),
    endedAt: moment('ended_at'),
    /** The reason why the run was asked to end: a request, a phase over its limit, or an archived cluster. */
    cancelReason: text('cancel_reason', { enum: ['asked', 'timeout', 'cluster_gone'] }),
    /** The place where the run runs: only gateways that reach the place can resume it. */
    place: text('place'),
    /** The gateway that claimed the run last, by an id that survives restarts. */
    holder: uuid('holder'),
    /** Grows with every claim and adoption. A write with an older number changes nothing. */
    fence: integer('fence').notNull().default(0),
    leaseUntil: moment('lease_until'),
    /** The phase that started last, and when. */
    phase: text('phase'),
    phaseStartedAt: moment('phase_started_at'),
    /** True if the run pins its version of the stack; versions that no run pins are deleted. */
    holdsVersion: boolean('holds_version').notNull().default(true),
    /** True if the work folder has a state that is not stored: nothing else knows what the run created. */
    leftState: boolean('left_state').notNull().default(false),
    /** When somebody dropped the record of what the run created, and the state that it left. */
    forgottenAt: moment('forgotten_at'),
    prepared: boolean('prepared').notNull().default(false),
    /** Bytes of the phase's output that are in the log. */
    logOffset: bigint('log_offset', { mode: 'number' }).notNull().default(0),
    logLines: integer('log_lines').notNull().default(0),
    logBytes: integer('log_bytes').notNull().default(0),
    /** `{operation, add, change, remove}` of the plan. */
    planned: jsonb('planned'),
    /** `{operation, add, change, remove}` of the plan, then of the apply. */
    changes: jsonb('changes'),
    /** Outputs, with the values of those that are not sensitive. */
    outputs: jsonb('outputs'),
    /** `{port, node, path}` of the web port that the run declares. */
    web: jsonb('web'),
    /** The reason why the declared web port is invalid; one sentence. */
    webProblem: text('web_problem'),
    /** Users of the web address. */
    access: text('access', { enum: runAccess }).notNull().default('public'),
    /** True if a platform administrator requested the apply: an engine that it declares serves every organization. */
    mayServe: boolean('may_serve').notNull().default(false),
    /** The last notice that was raised: that the plan waits, or that the run ended. Null: none. */
    notified: text('notified', { enum: ['plan', 'end'] }),
    /** Seconds from the end of the apply after which the resources are destroyed; null: never. */
    expiresAfter: integer('expires_after'),
    /** A time that somebody has set instead. */
    expiresAt: moment('expires_at'),
    /** True once it was announced that the resources will be destroyed. */
    expiryNotified: boolean('expiry_notified').notNull().default(false),
    /** When a destroy was last requested because the run had expired. */
    expiryTriedAt: moment('expiry_tried_at'),
    /** True if Headgate checks for drift by itself, while the run is APPLIED. */
    checkDrift: boolean('check_drift').notNull().default(true),
    /** The APPLIED run that this run checks for drift; null for all other runs. */
    driftOf: uuid('drift_of'),
    /** When a drift check of the run was last requested. */
    driftTriedAt: moment('drift_tried_at'),
    /** True from the notice that the run has drifted until a check finds no drift. */
    driftNotified: boolean('drift_notified').notNull().default(false),
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
    index('runs_unnotified_idx')
      .on(table.id)
      .where(sql`${table.notified} is distinct from 'end'`),
    index('runs_expiring_idx')
      .on(table.id)
      .where(
        sql`${table.status} = 'APPLIED' and (${table.expiresAfter} is not null or ${table.expiresAt} is not null)`,
      ),
    index('runs_serving_idx')
      .on(table.installationId)
      .where(sql`${table.mayServe} and ${table.status} = 'APPLIED'`),
    index('runs_drift_idx')
      .on(table.driftOf, table.id)
      .where(sql`${table.driftOf} is not null`),
    index('runs_drift_due_idx')
      .on(table.id)
      .where(sql`${table.status} = 'APPLIED' and ${table.checkDrift}`),
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
    /** Numbers from 1, without a gap. */
    seq: integer('seq').notNull(),
    at: moment('at').notNull(),
    phase: text('phase').notNull(),
    level: text('level', { enum: ['info', 'warn', 'error'] }).notNull(),
    type: text('type').notNull(),
    message: text('message').notNull(),
  },
  (table) => [primaryKey({ columns: [table.runId, table.seq] })],
);

/** Plans of runs that do not apply at once. */
export const runPlans = pgTable(
  'run_plans',
  {
    runId: uuid('run_id')
      .primaryKey()
      .references(() => runs.id, { onDelete: 'cascade' }),
    /** Terraform's plan file, encrypted, because it has secrets in clear text. Null once it can no longer be applied. */
    plan: bytes('plan'),
    lockFile: bytes('lock_file'),
    /** Identifies the variables of the plan: with others it is stale. */
    variablesSha256: text('variables_sha256'),
    /** `{resources, isTruncated}`: the changes without secrets. */
    changes: jsonb('changes').notNull(),
  },
  (table) => [
    index('run_plans_kept_idx')
      .on(table.runId)
      .where(sql`${table.plan} is not null`),
  ],
);

/**
 * Terraform's state of an installation; the highest `serial` is the newest. Encrypted, because it has secrets in clear
 * text.
 */
export const stackStates = pgTable(
  'stack_states',
  {
    installationId: uuid('installation_id')
      .notNull()
      .references(() => installations.id),
    serial: bigint('serial', { mode: 'number' }).notNull(),
    lineage: text('lineage').notNull(),
    runId: uuid('run_id').notNull(),
    /** Number of resources in the state; with none there is nothing to destroy. */
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
