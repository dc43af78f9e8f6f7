import type { Sql } from 'postgres';
import { type PlanChanges, planContext, type Sealer } from '#core/runs/lifecycle/lifecycle.ts';

/** A saved plan of Terraform, and what it depends on. */
export interface SavedPlan {
  readonly plan: Buffer;
  /** The providers that made the plan apply it too. */
  readonly lockFile: Buffer | null;
  /** SHA-256 of the variables that the plan contains. */
  readonly variablesSha256: string;
}

export interface ReviewedPlan extends PlanChanges {
  /** Null for a plan that is only shown. */
  readonly saved: SavedPlan | null;
}

/** Plans that people look at. They are stored encrypted, so that they outlive the gateway and the machine of the run. */
export interface Plans {
  /** Stores the plan of a run. A repeated call replaces it. */
  keep(runId: string, plan: ReviewedPlan): Promise<void>;
  /** Returns the plan of a confirmed run; null if there is none. @throws AppError secrets_unavailable */
  read(runId: string): Promise<SavedPlan | null>;
}

export function createPlans(sql: Sql, sealer: Sealer): Plans {
  return {
    async keep(runId, { saved, resources, isTruncated }) {
      const sealed = saved === null ? null : await sealer.seal(saved.plan, planContext(runId));
      const changes = JSON.stringify({ resources, isTruncated });
      await sql`
        insert into run_plans (run_id, plan, lock_file, variables_sha256, changes)
        values (${runId}, ${sealed}, ${saved?.lockFile ?? null}, ${saved?.variablesSha256 ?? null}, ${changes}::text::jsonb)
        on conflict (run_id) do update set plan = excluded.plan, lock_file = excluded.lock_file,
          variables_sha256 = excluded.variables_sha256, changes = excluded.changes`;
    },
    async read(runId) {
      const [row] = await sql<{ plan: Buffer; lockFile: Buffer | null; variablesSha256: string }[]>`
        select plan, lock_file as "lockFile", variables_sha256 as "variablesSha256" from run_plans
        where run_id = ${runId} and plan is not null`;
      return row === undefined ? null : { ...row, plan: await sealer.open(row.plan, planContext(runId)) };
    },
  };
}
