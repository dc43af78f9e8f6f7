import type { Sql } from 'postgres';
import { z } from 'zod';
import { type Sealer, stateContext } from './sources.ts';

/** Versions of an installation's state that are kept. */
const versionsKept = 5;
/** Terraform's states are kilobytes; one beyond this is refused rather than kept in a database. */
export const stateBytesMax = 64 * 1024 * 1024;

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
  /** Of the run that left it. */
  readonly stackVersionId: string | null;
}

export type KeepResult = 'kept' | 'unchanged' | 'not_a_state' | 'foreign' | 'older';

export interface States {
  latest(installationId: string): Promise<StoredState | null>;
  /** Keeps what a run has left, when it follows what is there: the same lineage, and a higher serial. */
  keep(left: { installationId: string; runId: string; state: Buffer; lockFile: Buffer | null }): Promise<KeepResult>;
}

interface StateRow {
  readonly serial: string;
  readonly lineage: string;
  readonly resources: number;
  readonly state: Buffer;
  readonly lockFile: Buffer | null;
  readonly stackVersionId: string | null;
}

export function createStates(sql: Sql, sealer: Sealer): States {
  return {
    async latest(installationId) {
      const [row] = await sql<StateRow[]>`
        select s.serial, s.lineage, s.resources, s.state, s.lock_file as "lockFile", r.stack_version_id as "stackVersionId"
        from stack_states s left join runs r on r.id = s.run_id
        where s.installation_id = ${installationId} order by s.serial desc limit 1`;
      if (row === undefined) return null;
      const state = await sealer.open(row.state, stateContext(installationId));
      return { ...row, serial: Number(row.serial), state };
    },
    async keep({ installationId, runId, state, lockFile }) {
      const read = readState(state);
      if (read === null) return 'not_a_state';
      const sealed = await sealer.seal(state, stateContext(installationId));
      return sql.begin(async (tx): Promise<KeepResult> => {
        await tx`select pg_advisory_xact_lock(hashtextextended(${`headgate ${stateContext(installationId)}`}, 0))`;
        const [last] = await tx<{ serial: string; lineage: string }[]>`
          select serial, lineage from stack_states where installation_id = ${installationId} order by serial desc limit 1`;
        if (last !== undefined && last.lineage !== read.lineage) return 'foreign';
        if (last !== undefined && Number(last.serial) > read.serial) return 'older';
        if (last !== undefined && Number(last.serial) === read.serial) return 'unchanged';
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

function readState(bytes: Buffer): z.infer<typeof stateSchema> | null {
  try {
    return stateSchema.parse(JSON.parse(bytes.toString('utf8')));
  } catch {
    return null;
  }
}
