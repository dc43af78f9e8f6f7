import { z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import type { ShownAddress } from '#core/exposures/exposures.ts';
import { failureCodes, type LoggedLine, type Run, runAccess, runOperations, runStatuses } from '#core/runs/runs.ts';
import { pageOf } from './pages.ts';
import { idText } from './schemas.ts';

/** Runs as they are shown. */

const changesSchema = z
  .object({
    operation: z.enum(['plan', 'apply', 'destroy']),
    add: z.int(),
    change: z.int(),
    remove: z.int(),
  })
  .openapi('RunChanges');

export const runSchema = z
  .object({
    id: idText('run'),
    cluster_id: idText('cluster'),
    organization_id: idText('org'),
    stack: z.string(),
    stack_id: idText('stack'),
    node: z.string().nullable().openapi({ description: 'null: the whole cluster' }),
    operation: z.enum(runOperations),
    status: z.enum(runStatuses),
    phase: z.enum(['init', 'plan', 'apply']).nullable(),
    failure_code: z
      .enum(failureCodes)
      .nullable()
      .openapi({
        description:
          'Why it is FAILED; ORGANIZATION_INACTIVE: the organization was suspended or closed before it began, and it can ' +
          'be retried when that is active again; STATE_NOT_SAVED: an earlier run, which failure_message names, has left ' +
          'a state that is not on record',
      }),
    failure_message: z.string().nullable(),
    overtaken: z.boolean().openapi({
      description:
        "It was given up with its machine, and what is on record is a later run's: to forget it drops what it has left " +
        'and nothing else',
    }),
    retry_of: z.string().nullable(),
    created_by: z.string().nullable().openapi({ description: 'user_… or key_…' }),
    created_at: z.iso.datetime(),
    started_at: z.iso.datetime().nullable(),
    ended_at: z.iso.datetime().nullable(),
    changes: changesSchema.nullable().openapi({ description: 'Of the plan, and then of what was done' }),
    outputs: z
      .record(z.string(), z.object({ sensitive: z.boolean(), value: z.unknown().optional() }))
      .nullable()
      .openapi({ description: 'Sensitive ones without their value' }),
    access: z.enum(runAccess).openapi({ description: 'Who may use the web address; the cluster may ask for less' }),
    url: z.string().nullable().openapi({ description: 'Its web address; null where it has none, or none any more' }),
    url_status: z.enum(['pending', 'ready', 'unreachable']).nullable().openapi({
      description: 'Whether something answers there',
    }),
    url_problem: z.string().nullable().openapi({ description: 'Why what it declares as its web port is none' }),
    log_lines: z.int(),
  })
  .openapi('Run');

export const runPageSchema = pageOf(runSchema, 'RunPage');

export const logLineSchema = z
  .object({
    seq: z.int().openapi({ description: 'From 1, without a gap' }),
    at: z.iso.datetime(),
    phase: z.string(),
    level: z.enum(['info', 'warn', 'error']),
    type: z.string().openapi({ description: "Terraform's `type`; `text` for what is none of its lines" }),
    message: z.string(),
  })
  .openapi('RunLogLine');

const iso = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString());

/** @param problem why it has no address, beside what it says itself */
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

/** Tries of `init` are one phase, and so is what is asked after an apply. */
function phaseOf(phase: string | null): 'init' | 'plan' | 'apply' | null {
  if (phase === null) return null;
  if (phase.startsWith('init')) return 'init';
  return phase === 'plan' ? 'plan' : 'apply';
}

export function toLineAnswer(line: LoggedLine): z.infer<typeof logLineSchema> {
  const { seq, atMs, phase, level, type, message } = line;
  return { seq, at: new Date(atMs).toISOString(), phase: phaseOf(phase) ?? phase, level, type, message };
}
