import { z } from 'zod';

/** Kinds of alerts, each with the schema of its `data`. */

const usd = z.string();
const seconds = z.int();

const key = z.strictObject({
  key_id: z.string(),
  name: z.string(),
  /** Parts of the secret that may be shown. */
  prefix: z.string(),
  last4: z.string(),
  scope: z.string(),
  project_id: z.string(),
  service_account_id: z.string().nullable(),
  /** Seconds since the Unix epoch; null: the key does not expire. */
  expires_at: seconds.nullable(),
  /** Author of the change; null for a change by the gateway itself. */
  by: z.strictObject({ user_id: z.string().nullable(), key_id: z.string().nullable() }).nullable(),
});

const anyBudget = z.strictObject({
  budget_id: z.string(),
  scope_type: z.string(),
  period: z.string(),
  /** Public names; null for all models. */
  models: z.array(z.string()).readonly().nullable(),
  /** First day of the period in UTC, as YYYY-MM-DD. */
  period_start: z.string(),
  /** Null for the life of the budget. */
  resets_at: seconds.nullable(),
  /** `hard`: requests that would exceed the budget are rejected. */
  mode: z.string(),
  amount: usd,
  currency: z.literal('USD'),
  percent: z.int(),
});

const budget = anyBudget.extend({
  /** Id in the budget's scope; for a budget per end user, the end user whose spending this is. */
  scope_id: z.string(),
  spent: usd,
});

/** A run of a stack. Inputs, outputs and messages are left out: they may contain secrets. */
const run = z.strictObject({
  run_id: z.string(),
  operation: z.string(),
  stack: z.string(),
  stack_version: z.int().nullable(),
  cluster_id: z.string(),
  /** Name; null for an archived cluster. */
  cluster: z.string().nullable(),
  node: z.string().nullable(),
  created_by: z.string().nullable(),
  created_via: z.string().nullable(),
});

const runStatus = run.extend({
  status: z.string(),
  failure_code: z.string().nullable(),
  plan: z.strictObject({ add: z.int(), change: z.int(), remove: z.int() }).nullable(),
  /** ISO; null unless the run waits for its confirmation. */
  confirm_by: z.string().nullable(),
});

const silence = z.strictObject({
  cluster_id: z.string(),
  cluster: z.string(),
  count: z.int(),
  nodes: z.array(z.strictObject({ id: z.string(), name: z.string(), last_seen_at: z.string().nullable() })).readonly(),
  silence_seconds: z.number(),
});

const endpoint = z.strictObject({
  webhook_id: z.string(),
  /** Scheme and host of the endpoint's URL, without the rest. */
  origin: z.string(),
});

interface Kind<S extends z.ZodType = z.ZodType> {
  readonly about: string;
  /** True if owners and admins get the kind by email by default. */
  readonly mailed: boolean;
  readonly data: S;
}

const kind = <S extends z.ZodType>(about: string, mailed: boolean, data: S): Kind<S> => ({ about, mailed, data });

export const alertKinds = {
  'wallet.low_balance': kind(
    'The balance of the wallet fell below `wallet_alert_below`. `balance`, `alert_below`: USD as decimal strings',
    true,
    z.strictObject({ balance: usd, alert_below: usd, currency: z.literal('USD') }),
  ),
  'budget.reached': kind(
    'Spending reached one of the `alert_percents` of a budget. `budget_id`, `scope_type`, `scope_id`, `period`, `models`, `period_start`, `resets_at`, `mode`, `percent`; `amount`, `spent`: USD as decimal strings',
    true,
    budget,
  ),
  'budget.exceeded': kind('A budget is used up, or rejected a request; `data` as for `budget.reached`', true, budget),
  'budget.many_users': kind(
    'A budget for each end user reached its maximum number of alerts in a period: further end users get no alert of their own. Sent once more when the period ends, with `is_over`. `end_users`: how many spent `percent` of it; `alerts`: how many were sent; other fields as for `budget.reached`, without `scope_id` and `spent`',
    true,
    anyBudget.extend({ alerts: z.int(), end_users: z.int(), is_over: z.boolean() }),
  ),
  'cost_budget.reached': kind(
    'The costs of node-hours and GPU-hours of this month reached one of the `alert_percents` of the cost budget. `month`, `percent`, `currency`; `amount`, `spent`, `forecast` (for the whole month): decimal strings',
    true,
    z.strictObject({
      month: z.string(),
      percent: z.int(),
      amount: z.string(),
      spent: z.string(),
      forecast: z.string(),
      currency: z.string(),
    }),
  ),
  'api_key.created': kind(
    'An API key was created. `key_id`, `name`, `prefix`, `last4`, `scope`, `project_id`, `service_account_id`, `expires_at`, `by`',
    false,
    key,
  ),
  'api_key.rotated': kind('The secret of an API key was rotated; `data` as for `api_key.created`', false, key),
  'api_key.revoked': kind('An API key was revoked; `data` as for `api_key.created`', false, key),
  'api_key.reported': kind(
    'A secret was reported as leaked and no longer works; `data` as for `api_key.created`',
    true,
    key,
  ),
  'api_key.expiring': kind('An API key expires in less than one week; `data` as for `api_key.created`', false, key),
  'run.succeeded': kind(
    'A run ended as `APPLIED`, `DESTROYED` or `PLANNED_AND_FINISHED`. `run_id`, `status`, `failure_code`, `operation`, `stack`, `stack_version`, `cluster_id`, `cluster` (name), `node`, `created_by`, `created_via`, `plan` (counts), `confirm_by`',
    false,
    runStatus,
  ),
  'run.failed': kind('A run ended as `FAILED`; `data` as for `run.succeeded`', true, runStatus),
  'run.canceled': kind('A run ended as `CANCELED` or `DISCARDED`; `data` as for `run.succeeded`', false, runStatus),
  'run.needs_confirmation': kind(
    'The plan of a run waits to be confirmed or discarded until `confirm_by`; `data` as for `run.succeeded`',
    true,
    runStatus,
  ),
  'run.expiring': kind(
    'What a run applied expires soon: at `expires_at` it is destroyed. Sent 24 hours before, or a quarter of its life before if that is shorter. `run_id`, `operation`, `stack`, `stack_version`, `cluster_id`, `cluster`, `node`, `created_by`, `created_via` as for `run.succeeded`',
    true,
    run.extend({ expires_at: z.string() }),
  ),
  'run.drifted': kind(
    'Resources of an applied run were changed or deleted outside of Headgate. Sent once, until a drift check finds no drift. `changed`, `deleted`: numbers of resources; `check_run_id`: the run whose plan shows what differs; other fields as for `run.expiring`',
    true,
    run.extend({ check_run_id: z.string(), changed: z.int(), deleted: z.int() }),
  ),
  'cluster.nodes_silent': kind(
    'Allocated nodes of a cluster have sent no heartbeat for `silence_seconds`. `cluster_id`, `cluster` (name), `count`; `nodes`: the first 20, each with `id`, `name` and `last_seen_at`',
    true,
    silence,
  ),
  'cluster.nodes_back': kind(
    'Nodes that were reported as silent have sent heartbeats again for `silence_seconds`; `data` as for `cluster.nodes_silent`',
    true,
    silence,
  ),
  'engine.failed': kind(
    'An engine failed; sent only to the organization of the platform. `engine`: id of the engine; `cause`: reason',
    false,
    z.strictObject({ engine: z.string(), cause: z.string().nullable() }),
  ),
  'gateways.differ': kind(
    'Gateways of one database have different engine files, prices, settings, keys or versions, for longer than a rollout takes; sent only to the organization of the platform. `count`; `differences`: the first 20, as text',
    true,
    z.strictObject({ count: z.int(), differences: z.array(z.string()) }),
  ),
  'platform.problem': kind(
    'A resource of the platform is nearly full, overdue or missing; at most once a day, sent only to the organization of the platform. `problem`: `backup_old`, `disk_nearly_full`, `redis_nearly_full`, `platform_key_missing` or `reconcile_unexplained`; `text`; `runbook`: documentation page with the steps to take',
    true,
    z.strictObject({ problem: z.string(), text: z.string(), runbook: z.string() }),
  ),
  'webhook.disabled': kind(
    'A webhook was disabled after three days without a delivery, or after a 410. `webhook_id`, `origin`, `reason`: `failing` or `gone`',
    true,
    endpoint.extend({ reason: z.enum(['failing', 'gone']) }),
  ),
  'webhook.test': kind('Test event, sent only to the tested webhook. `webhook_id`, `origin`', false, endpoint),
} as const satisfies Readonly<Record<string, Kind>>;

export type AlertType = keyof typeof alertKinds;

export const alertTypes = Object.keys(alertKinds) as readonly AlertType[];

/** Kinds that an endpoint or organization can choose; a test always goes to the tested webhook. */
export const chosenTypes = alertTypes.filter((type) => type !== 'webhook.test') as readonly Exclude<
  AlertType,
  'webhook.test'
>[];

/** Kinds that are mailed if the organization has not chosen. */
export const mailedTypes = chosenTypes.filter((type) => alertKinds[type].mailed);

/**
 * Kinds that recipients of other kinds also get: `budget.many_users` reports that no further alerts of those kinds are
 * sent.
 */
const goesWith: Readonly<Record<string, readonly string[]>> = {
  'budget.many_users': ['budget.reached', 'budget.exceeded'],
};

/** True if a recipient that has chosen these kinds gets a kind. */
export const isChosen = (chosen: readonly string[], type: string): boolean =>
  [type, ...(goesWith[type] ?? [])].some((one) => chosen.includes(one));

/** An alert to raise, with its organization. */
export type Alert = { [T in AlertType]: AlertOf<T> }[AlertType];

interface AlertOf<T extends AlertType> {
  /** UUID of the organization. */
  readonly organizationId: string;
  readonly type: T;
  readonly data: z.input<(typeof alertKinds)[T]['data']>;
  /** Name under which an organization gets only one such alert, as long as its event is kept. */
  readonly once?: string;
}

/** @throws Error for an unknown kind, and for data that does not match its kind */
export function checkedData({ type, data }: Alert): Readonly<Record<string, unknown>> {
  if (!Object.hasOwn(alertKinds, type)) throw new Error(`unknown kind of alert: ${JSON.stringify(type)}`);
  const parsed = alertKinds[type].data.safeParse(data);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new Error(`invalid data for an alert of the kind ${type}: ${issue?.path.join('.')} ${issue?.message}`);
}
