import { z } from 'zod';
import { idText } from './fields.ts';
import { pageOf } from './lists.ts';

/** Answers of `/v1/runs` and `/v1/runner`. */

/** Statuses of a run, in the order in which a run takes them. */
export const runStatuses = [
  'PENDING',
  'PLANNING',
  'PLANNED',
  'APPLYING',
  'APPLIED',
  'SUPERSEDED',
  'DESTROYING',
  'DESTROYED',
  'CANCELING',
  'CANCELED',
  'DISCARDED',
  'PLANNED_AND_FINISHED',
  'FAILED',
] as const;

const changesSchema = z
  .object({
    operation: z
      .enum(['plan', 'apply', 'destroy'])
      .meta({ description: '`plan`: the numbers are planned. `apply`, `destroy`: the changes were made' }),
    add: z.int().meta({ description: 'Number of resources to create, or created' }),
    change: z.int().meta({ description: 'Number of resources to change, or changed' }),
    remove: z.int().meta({ description: 'Number of resources to remove, or removed' }),
  })
  .meta({ id: 'RunChanges' });

const driftSchema = z
  .object({
    status: z.enum(['none', 'drifted', 'unknown']).meta({
      description:
        'Result of the last check that completed. `drifted`: resources were changed or deleted outside of Headgate. ' +
        '`unknown`: no check has completed',
    }),
    checked_at: z.iso.datetime().nullable().meta({ description: 'When that check ended; null if `unknown`' }),
    check_run_id: z.string().nullable().meta({ description: 'Id of that check, whose plan shows what differs' }),
    changed: z.int().meta({ description: 'Number of resources that were changed' }),
    deleted: z.int().meta({ description: 'Number of resources that no longer exist' }),
    pending_run_id: z
      .string()
      .nullable()
      .meta({ description: 'Id of the check that is pending or active; null if none' }),
    failed_run_id: z.string().nullable().meta({ description: 'Id of the last check if it failed; null if it did not' }),
  })
  .meta({ id: 'RunDrift' });

/** A run of a stack. */
export const runSchema = z
  .object({
    id: idText('run'),
    cluster_id: idText('cluster'),
    organization_id: idText('org'),
    stack: z.string().meta({ description: 'Name of the stack' }),
    stack_id: idText('stack'),
    node: z.string().nullable().meta({ description: 'Name of the node; null is the whole cluster' }),
    operation: z.enum(['apply', 'destroy']),
    status: z.enum(runStatuses).meta({
      description:
        '`PENDING`: waits for its cluster. `PLANNING`: `init` and `plan` run. `PLANNED`: the plan waits to be confirmed ' +
        'or discarded, and the cluster waits with it. `PLANNED_AND_FINISHED`: the run was `plan_only`. `APPLIED`: the ' +
        'resources exist. ' +
        '`SUPERSEDED`: a later run of the same stack on the cluster is `APPLIED`',
    }),
    phase: z
      .enum(['init', 'plan', 'apply'])
      .nullable()
      .meta({ description: 'Phase that runs now, or ran last; null before the start' }),
    failure_code: z
      .enum([
        'INIT_FAILED',
        'PLAN_FAILED',
        'PLAN_STALE',
        'APPLY_FAILED',
        'DESTROY_FAILED',
        'TIMEOUT',
        'INTERRUPTED',
        'STATE_SAVE_FAILED',
        'STATE_NOT_SAVED',
        'LIMIT_EXCEEDED',
        'RUNNER_UNAVAILABLE',
        'CLUSTER_GONE',
        'ORGANIZATION_INACTIVE',
      ])
      .nullable()
      .meta({
        description:
          'Why the run failed; null if it did not. `ORGANIZATION_INACTIVE`: the organization was suspended or closed ' +
          'before the start; retry when it is active. `PLAN_STALE`: the state or the cluster changed after the plan. `STATE_NOT_SAVED`: the state of an earlier run, named in ' +
          '`failure_message`, was not saved',
      }),
    failure_message: z.string().nullable().meta({ description: 'Why the run failed, in words; null if it did not' }),
    overtaken: z.boolean().meta({
      description:
        'true if the run was lost with its machine and a later run replaced its state: forgetting it deletes only ' +
        'its own leftovers',
    }),
    retry_of: z.string().nullable().meta({ description: 'Id of the run that this run repeats; null if none' }),
    stack_version: z.int().nullable().meta({
      description: 'Number of the version of the stack; null for runs of earlier versions of Headgate',
    }),
    inputs: z
      .record(z.string(), z.object({ sensitive: z.boolean(), set: z.boolean(), value: z.unknown().optional() }))
      .nullable()
      .meta({
        description:
          'Inputs by name. Sensitive ones have no value. `set` is false where the default of the module applies. Null ' +
          'for runs of earlier versions of Headgate',
      }),
    created_via: z.enum(['api', 'portal', 'cli', 'expiry', 'drift']).nullable().meta({
      description:
        'Program that requested the run; `expiry`, `drift`: Headgate itself, because the applied run expired, or to check it for drift; null for runs of earlier versions of Headgate',
    }),
    queue_position: z
      .int()
      .nullable()
      .meta({ description: 'Place in the queue of the cluster, from 1; null unless the run is `PENDING`' }),
    plan_only: z.boolean().meta({ description: 'true if the run makes a plan and changes nothing' }),
    auto_apply: z.boolean().meta({ description: 'false if the plan waits until somebody confirms it' }),
    planned_at: z.iso
      .datetime()
      .nullable()
      .meta({ description: 'When the plan of a `plan_only` run, or of a run without `auto_apply`, was ready' }),
    confirm_by: z.iso
      .datetime()
      .nullable()
      .meta({ description: 'When a plan that nobody confirms fails with `TIMEOUT`; null unless the run is `PLANNED`' }),
    confirmed_at: z.iso.datetime().nullable().meta({ description: 'When the plan was confirmed; null if it was not' }),
    plan: z
      .object({ add: z.int(), change: z.int(), remove: z.int() })
      .nullable()
      .meta({ description: 'Number of resources that the plan creates, changes and removes; null before the plan' }),
    created_by: z.string().nullable().meta({ description: 'Id of the API key, or of the signed-in user' }),
    created_at: z.iso.datetime(),
    started_at: z.iso.datetime().nullable().meta({ description: 'Null while pending' }),
    ended_at: z.iso.datetime().nullable().meta({ description: 'Null until the run ends' }),
    changes: changesSchema
      .nullable()
      .meta({ id: 'RunChanges', description: 'Planned changes, then the changes made; null before the plan' }),
    outputs: z
      .record(z.string(), z.object({ sensitive: z.boolean(), value: z.unknown().optional() }))
      .nullable()
      .meta({ description: 'Outputs by name, of which sensitive ones have no value; null if there are none' }),
    access: z
      .enum(['public', 'members'])
      .meta({ description: 'Who may open the web address; the cluster may restrict it further' }),
    url: z.string().nullable().meta({ description: 'Web address; null if there is none' }),
    url_status: z.enum(['pending', 'ready', 'unreachable']).nullable().meta({
      description: '`ready`: the web address responds. `unreachable`: it does not. Null without a web address',
    }),
    url_problem: z
      .string()
      .nullable()
      .meta({ description: 'Why the declared web port cannot be used; null if it can' }),
    expires_after: z
      .int()
      .nullable()
      .meta({
        description:
          'Seconds from the end of the apply after which its resources are destroyed, as requested; null: never, or ' +
          '`expires_at` was changed',
      }),
    expires_at: z.iso.datetime().nullable().meta({
      description: 'When Headgate destroys the resources; null for never, and unless the run is `APPLIED`',
    }),
    check_drift: z
      .boolean()
      .meta({ description: 'true if Headgate checks for drift by itself, while the run is `APPLIED`' }),
    drift: driftSchema.nullable().meta({
      id: 'RunDrift',
      description: 'Result of the drift checks; null before the first, and unless the run is `APPLIED`',
    }),
    drift_check_of: z.string().nullable().meta({
      description: 'Id of the run that this run checks for drift; null if it is not a drift check',
    }),
    log_lines: z.int().meta({ description: 'Number of lines in the log' }),
  })
  .meta({ id: 'Run' });

const plannedAttributeSchema = z
  .object({
    name: z.string(),
    sensitive: z.boolean().meta({ description: 'true if the value, or a part of it, is not shown' }),
    unknown: z.boolean().meta({ description: 'true if the new value is known only after the apply' }),
    before: z.unknown().optional().meta({ description: 'Value now; absent if there is none, or if it is not shown' }),
    after: z.unknown().optional().meta({ description: 'Planned value; absent as `before`' }),
  })
  .meta({ id: 'PlannedAttribute' });

const plannedResourceSchema = z
  .object({
    address: z.string().meta({ example: 'terraform_data.queue' }),
    action: z.enum(['create', 'update', 'replace', 'delete', 'read', 'forget']),
    attributes: z.array(plannedAttributeSchema).meta({ description: 'Attributes that change' }),
  })
  .meta({ id: 'PlannedResource' });

/** The plan of a run, resource by resource. */
export const runPlanSchema = z
  .object({
    run_id: idText('run'),
    planned_at: z.iso.datetime(),
    resources: z.array(plannedResourceSchema).meta({ description: 'Resources that the plan changes' }),
    truncated: z.boolean().meta({ description: 'true if resources or values are left out: the plan is too large' }),
  })
  .meta({ id: 'RunPlan' });

/** A page of runs. */
export const runPageSchema = pageOf(runSchema, 'RunPage');

/** A line of the log of a run. */
export const runLogLineSchema = z
  .object({
    seq: z.int().meta({ description: 'Line number, counted from 1 without gaps' }),
    at: z.iso.datetime(),
    phase: z.string().meta({ description: '`init`, `plan` or `apply`' }),
    level: z.enum(['info', 'warn', 'error']),
    type: z.string().meta({ description: '`type` of the Terraform message; `text` for other output' }),
    message: z.string(),
  })
  .meta({ id: 'RunLogLine' });

/** Lines of the log of a run. */
export const runLogSchema = z
  .object({
    data: z.array(runLogLineSchema),
    next_after: z.int().meta({ description: '`after` for the next request' }),
    expired: z.boolean().meta({ description: 'true if the lines were deleted, 90 days after the run ended' }),
    complete: z.boolean().meta({ description: 'true if the run has ended and these are its last lines' }),
  })
  .meta({ id: 'RunLog' });

/** A link to the web address of a run. */
export const openedRunSchema = z
  .object({
    url: z.url().meta({ description: 'Link to the web address; for access `members` it works once and sets a cookie' }),
    expires_at: z.iso.datetime().nullable().meta({ description: 'Null if the link does not expire' }),
  })
  .meta({ id: 'OpenedRun' });

/** The state of the Terraform runner: whether stacks can be applied. */
export const runnerSchema = z
  .object({
    available: z.boolean().meta({ description: 'true if stacks can be applied' }),
    problem: z
      .string()
      .nullable()
      .meta({ description: 'Why stacks cannot be applied, in full for platform administrators; null if they can' }),
  })
  .meta({ id: 'Runner' });

export type RunPlanAnswer = z.infer<typeof runPlanSchema>;
export type RunAnswer = z.infer<typeof runSchema>;
export type RunStatusAnswer = (typeof runStatuses)[number];
export type RunLogLineAnswer = z.infer<typeof runLogLineSchema>;
export type RunLogAnswer = z.infer<typeof runLogSchema>;
export type OpenedRunAnswer = z.infer<typeof openedRunSchema>;
export type RunnerAnswer = z.infer<typeof runnerSchema>;
