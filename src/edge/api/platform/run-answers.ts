import { formatId } from '#base/id.ts';
import type { ShownAddress } from '#core/web-addresses/web-addresses.ts';
import { type LoggedLine, type PlanChanges, type Run, waitHoursMax } from '#core/runs/runs.ts';
import type { RunAnswer, RunLogLineAnswer, RunPlanAnswer } from '#edge/contract/runs.ts';

/** Schemas of runs in the API. */

const iso = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString());

/** @param problem why the run has no web address, unless the run has its own `webProblem` */
export function toRunAnswer(run: Run, address?: ShownAddress, problem: string | null = null): RunAnswer {
  const key = run.createdByKey === null ? null : formatId('key', run.createdByKey);
  const user = run.createdByUser === null ? null : formatId('user', run.createdByUser);
  return {
    id: formatId('run', run.id),
    cluster_id: formatId('cluster', run.clusterId),
    organization_id: formatId('org', run.organizationId),
    stack: run.stackName,
    stack_id: formatId('stack', run.stackId),
    node: run.node === '' ? null : run.node,
    operation: run.operation,
    status: run.status,
    phase: phaseOf(run.phase),
    failure_code: run.failureCode,
    failure_message: run.failureMessage,
    overtaken: run.isOvertaken,
    retry_of: runIdOf(run.retryOf),
    stack_version: run.stackVersion,
    inputs: run.shownInputs === null ? null : { ...run.shownInputs },
    created_via: run.origin,
    queue_position: run.queuePosition,
    plan_only: run.mode === 'plan',
    auto_apply: run.mode === 'auto',
    planned_at: iso(run.plannedAtMs),
    confirm_by: iso(confirmByMs(run)),
    confirmed_at: iso(run.confirmedAtMs),
    plan: run.planned === null ? null : countsOf(run.planned),
    created_by: key ?? user,
    created_at: new Date(run.createdAtMs).toISOString(),
    started_at: iso(run.startedAtMs),
    ended_at: iso(run.endedAtMs),
    changes: run.changes,
    outputs: run.outputs === null ? null : { ...run.outputs },
    access: run.access,
    url: address === undefined ? null : `https://${address.host}${address.path}`,
    url_status: address?.status ?? null,
    url_problem: run.webProblem ?? problem,
    expires_after: run.expiresAfter,
    expires_at: iso(run.expiresAtMs),
    check_drift: run.checkDrift,
    drift: driftOf(run),
    drift_check_of: runIdOf(run.driftOf),
    log_lines: run.logLines,
  };
}

const runIdOf = (id: string | null): string | null => (id === null ? null : formatId('run', id));

function driftOf({ driftFound: found, driftCheckId, driftFailedId }: Run): RunAnswer['drift'] {
  if (found === null && driftCheckId === null && driftFailedId === null) return null;
  const isDrifted = found !== null && found.changed + found.deleted > 0;
  return {
    status: found === null ? 'unknown' : isDrifted ? 'drifted' : 'none',
    checked_at: iso(found?.checkedAtMs ?? null),
    check_run_id: runIdOf(found?.runId ?? null),
    changed: found?.changed ?? 0,
    deleted: found?.deleted ?? 0,
    pending_run_id: runIdOf(driftCheckId),
    failed_run_id: runIdOf(driftFailedId),
  };
}

function confirmByMs({ status, plannedAtMs }: Run): number | null {
  return status === 'PLANNED' && plannedAtMs !== null ? plannedAtMs + waitHoursMax * 3_600_000 : null;
}

const countsOf = ({ add, change, remove }: NonNullable<Run['planned']>) => ({ add, change, remove });

/**
 * Returns the phase as the API shows it: every attempt of `init` is one phase, and steps after an apply belong to
 * `apply`.
 */
function phaseOf(phase: string | null): 'init' | 'plan' | 'apply' | null {
  if (phase === null) return null;
  if (phase.startsWith('init')) return 'init';
  return phase === 'plan' || phase === 'show' ? 'plan' : 'apply';
}

export function toPlanAnswer({ id, plannedAtMs }: Run, { resources, isTruncated }: PlanChanges): RunPlanAnswer {
  return {
    run_id: formatId('run', id),
    planned_at: new Date(plannedAtMs ?? 0).toISOString(),
    resources: resources.map((one) => ({ ...one, attributes: [...one.attributes] })),
    truncated: isTruncated,
  };
}

export function toLineAnswer(line: LoggedLine): RunLogLineAnswer {
  const { seq, atMs, phase, level, type, message } = line;
  return { seq, at: new Date(atMs).toISOString(), phase: phaseOf(phase) ?? phase, level, type, message };
}
