import type { Sql, TransactionSql } from 'postgres';
import { z } from 'zod';
import {
  activeStatuses,
  type RunStatus,
  type Sealer,
  stateContext,
  unfinishedStatuses,
} from '#core/runs/lifecycle/lifecycle.ts';

/** Stored versions of an installation's state. */
const versionsKept = 5;
const stateSchema = z.object({
  serial: z.int().min(0),
  lineage: z.string().min(1).max(200),
  resources: z.array(z.unknown()).default([]),
});

export interface StoredState {
  readonly serial: number;
  readonly lineage: string;
  readonly resources: number;
  readonly state: Buffer;
  readonly lockFile: Buffer | null;
  /** The stack version of the run that left the state. */
  readonly stackVersionId: string | null;
}

export type KeepResult =
  | 'kept'
  /** The state is stored already, or the run was forgotten. */
  | 'unchanged'
  | 'not_a_state'
  /** The state has another lineage. */
  | 'foreign'
  /** A later run of the installation has started without this state, and only what the later run creates counts. */
  | 'overtaken';

export interface States {
  /** Maximum size; a larger state is rejected. */
  readonly bytesMax: number;
  latest(installationId: string): Promise<StoredState | null>;
  /**
   * Stores the state that a run has left, if it follows the stored one: the same lineage, a higher serial, and no later
   * run that is active or has stored a state.
   */
  keep(candidate: {
    installationId: string;
    runId: string;
    state: Buffer;
    lockFile: Buffer | null;
  }): Promise<KeepResult>;
  /** Records whether a run's folder has a state that is not stored. */
  markUnsaved(runId: string, isUnsaved: boolean): Promise<void>;
  /**
   * Returns a run of the installation whose folder has an unstored state and that nobody has forgotten; null if there
   * is none.
   */
  unsavedRun(installationId: string): Promise<string | null>;
}

interface StateRow {
  readonly serial: string;
  readonly lineage: string;
  readonly resources: number;
  readonly state: Buffer;
  readonly lockFile: Buffer | null;
  readonly stackVersionId: string | null;
}

export function createStates(sql: Sql, sealer: Sealer, bytesMax: number): States {
  return {
    bytesMax,
    async latest(installationId) {
      const [row] = await sql<StateRow[]>`
        select s.serial, s.lineage, s.resources, s.state, s.lock_file as "lockFile", r.stack_version_id as "stackVersionId"
        from stack_states s left join runs r on r.id = s.run_id
        where s.installation_id = ${installationId} order by s.serial desc limit 1`;
      if (row === undefined) return null;
      const state = await sealer.open(row.state, stateContext(installationId));
      return { ...row, serial: Number(row.serial), state };
    },
    async markUnsaved(runId, isUnsaved) {
      await sql`update runs set left_state = ${isUnsaved} where id = ${runId} and left_state <> ${isUnsaved}`;
    },
    async unsavedRun(installationId) {
      const [row] = await sql<{ id: string }[]>`
        select id from runs where installation_id = ${installationId} and left_state and forgotten_at is null
        order by id limit 1`;
      return row?.id ?? null;
    },
    async keep({ installationId, runId, state, lockFile }) {
      const read = readState(state);
      if (read === null) return 'not_a_state';
      const sealed = await sealer.seal(state, stateContext(installationId));
      return sql.begin(async (tx): Promise<KeepResult> => {
        const candidate = { installationId, runId, ...read };
        const refused = await findRejection(tx, candidate);
        if (refused !== null) return refused;
        await tx`
          insert into stack_states (installation_id, serial, lineage, run_id, resources, state, lock_file, created_at)
          values (${installationId}, ${read.serial}, ${read.lineage}, ${runId}, ${read.resources.length}, ${sealed},
            ${lockFile}, clock_timestamp())`;
        await tx`
          delete from stack_states where installation_id = ${installationId} and serial not in (
            select serial from stack_states where installation_id = ${installationId}
            order by serial desc limit ${versionsKept})`;
        return 'kept';
      });
    },
  };
}

type ReadState = z.infer<typeof stateSchema>;

interface CandidateState extends ReadState {
  readonly installationId: string;
  readonly runId: string;
}

/**
 * Returns the reason why a state is not stored. Locks the installation's state until the transaction ends: meanwhile no
 * run of the cluster is added, and none of the installation starts. Drift checks overtake nothing: they create nothing.
 * @returns null if the state can be stored
 */
async function findRejection(tx: TransactionSql, candidate: CandidateState): Promise<KeepResult | null> {
  const { installationId, runId, serial, lineage } = candidate;
  await tx`
    select pg_advisory_xact_lock(hashtextextended('headgate runs ' || cluster_id::text, 0)) from runs where id = ${runId}`;
  await tx`select pg_advisory_xact_lock(hashtextextended(${`headgate ${stateContext(installationId)}`}, 0))`;
  const [run] = await tx<{ isForgotten: boolean; isLost: boolean }[]>`
    select forgotten_at is not null as "isForgotten", failure_code is not distinct from 'INTERRUPTED' as "isLost"
    from runs where id = ${runId}`;
  if (run?.isForgotten === true) return 'unchanged';
  const rows = await tx<{ serial: string; lineage: string; isLater: boolean }[]>`
    select serial, lineage, run_id > ${runId} as "isLater" from stack_states
    where installation_id = ${installationId} order by serial desc`;
  const known = rows.filter(({ isLater }) => !isLater);
  if (known.some((row) => row.lineage === lineage && Number(row.serial) >= serial)) return 'unchanged';
  if (rows.some(({ isLater }) => isLater)) {
    // Only the last versions are stored: the run's own may have been deleted, unless its machine was given up.
    const isOld = known.length === 0 && rows.every((row) => row.lineage === lineage && Number(row.serial) > serial);
    return isOld && run?.isLost !== true ? 'unchanged' : 'overtaken';
  }
  const later = await tx<{ status: RunStatus }[]>`
    select status from runs
    where installation_id = ${installationId} and id > ${runId} and status in ${tx([...unfinishedStatuses])}
      and drift_of is null
    for share`;
  if (later.some(({ status }) => activeStatuses.includes(status))) return 'overtaken';
  return rows.length > 0 && rows[0]?.lineage !== lineage ? 'foreign' : null;
}

function readState(bytes: Buffer): z.infer<typeof stateSchema> | null {
  try {
    return stateSchema.parse(JSON.parse(bytes.toString('utf8')));
  } catch {
    return null;
  }
}
