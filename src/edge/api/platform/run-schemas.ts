import { z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import type { ShownAddress } from '#core/web-addresses/web-addresses.ts';
import { failureCodes, type LoggedLine, type Run, runAccess, runOperations, runStatuses } from '#core/runs/runs.ts';
import { idText, pageOf } from '#edge/api/shared/shared.ts';

/** Schemas of runs in the API. */

const changesSchema = z
  .object({
    operation: z
      .enum(['plan', 'apply', 'destroy'])
      .openapi({ description: '`plan`: the numbers are planned. `apply`, `destroy`: the changes were made' }),
    add: z.int().openapi({ description: 'Number of resources to create, or created' }),
    change: z.int().openapi({ description: 'Number of resources to change, or changed' }),
    remove: z.int().openapi({ description: 'Number of resources to remove, or removed' }),
  })
  .openapi('RunChanges');

export const runSchema = z
  .object({
    id: idText('run'),
    cluster_id: idText('cluster'),
    organization_id: idText('org'),
    stack: z.string().openapi({ description: 'Name of the stack' }),
    stack_id: idText('stack'),
    node: z.string().nullable().openapi({ description: 'Name of the node; null is the whole cluster' }),
    operation: z.enum(runOperations),
    status: z.enum(runStatuses).openapi({
      description:
        '`PENDING`: waits for its cluster. `PLANNING`: `init` and `plan` run. `APPLIED`: the resources exist. ' +
        '`SUPERSEDED`: a later run of the same stack on the cluster is `APPLIED`',
    }),
    phase: z
      .enum(['init', 'plan', 'apply'])
      .nullable()
      .openapi({ description: 'Phase that runs now, or ran last; null before the start' }),
    failure_code: z
      .enum(failureCodes)
      .nullable()
      .openapi({
        description:
          'Why the run failed; null if it did not. `ORGANIZATION_INACTIVE`: the organization was suspended or closed ' +
          'before the start; retry when it is active. `STATE_NOT_SAVED`: the state of an earlier run, named in ' +
          '`failure_message`, was not saved',
      }),
    failure_message: z.string().nullable().openapi({ description: 'Why the run failed, in words; null if it did not' }),
    overtaken: z.boolean().openapi({
      description:
        'true if the run was lost with its machine and a later run replaced its state: forgetting it deletes only ' +
        'its own leftovers',
    }),
    retry_of: z.string().nullable().openapi({ description: 'Id of the run that this run repeats; null if none' }),
    created_by: z.string().nullable().openapi({ description: 'Id of the API key, or of the signed-in user' }),
    created_at: z.iso.datetime(),
    started_at: z.iso.datetime().nullable().openapi({ description: 'Null while pending' }),
    ended_at: z.iso.datetime().nullable().openapi({ description: 'Null until the run ends' }),
    changes: changesSchema
      .nullable()
      .openapi({ description: 'Planned changes, then the changes made; null before the plan' }),
    outputs: z
      .record(z.string(), z.object({ sensitive: z.boolean(), value: z.unknown().optional() }))
      .nullable()
      .openapi({ description: 'Outputs by name, of which sensitive ones have no value; null if there are none' }),
    access: z
      .enum(runAccess)
      .openapi({ description: 'Who may open the web address; the cluster may restrict it further' }),
    url: z.string().nullable().openapi({ description: 'Web address; null if there is none' }),
    url_status: z.enum(['pending', 'ready', 'unreachable']).nullable().openapi({
      description: '`ready`: the web address responds. `unreachable`: it does not. Null without a web address',
    }),
    url_problem: z
      .string()
      .nullable()
      .openapi({ description: 'Why the declared web port cannot be used; null if it can' }),
    log_lines: z.int().openapi({ description: 'Number of lines in the log' }),
  })
  .openapi('Run');

export const runPageSchema = pageOf(runSchema, 'RunPage');

export const logLineSchema = z
  .object({
    seq: z.int().openapi({ description: 'Line number, counted from 1 without gaps' }),
    at: z.iso.datetime(),
    phase: z.string().openapi({ description: '`init`, `plan` or `apply`' }),
    level: z.enum(['info', 'warn', 'error']),
    type: z.string().openapi({ description: '`type` of the Terraform message; `text` for other output' }),
    message: z.string(),
  })
  .openapi('RunLogLine');

const iso = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString());

/** @param problem why the run has no web address, unless the run has its own `webProblem` */
export function toRunAnswer(
  run: Run,
  address?: ShownAddress,
  problem: string | null = null,
): z.infer<typeof runSchema> {
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
    retry_of: run.retryOf === null ? null : formatId('run', run.retryOf),
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
    log_lines: run.logLines,
  };
}

/**
 * Returns the phase as the API shows it: every attempt of `init` is one phase, and steps after an apply belong to
 * `apply`.
 */
function phaseOf(phase: string | null): 'init' | 'plan' | 'apply' | null {
  if (phase === null) return null;
  if (phase.startsWith('init')) return 'init';
  return phase === 'plan' ? 'plan' : 'apply';
}

export function toLineAnswer(line: LoggedLine): z.infer<typeof logLineSchema> {
  const { seq, atMs, phase, level, type, message } = line;
  return { seq, at: new Date(atMs).toISOString(), phase: phaseOf(phase) ?? phase, level, type, message };
}
