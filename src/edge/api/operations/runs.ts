import { exampleId, isoTime, laterIsoTime, numberedPage } from './examples.ts';
import type { Tag } from './operation.ts';

const run = {
  id: exampleId('run'),
  cluster_id: exampleId('cluster'),
  organization_id: exampleId('org'),
  stack: 'scheduler',
  stack_id: exampleId('stack'),
  node: 'gpu-1',
  operation: 'apply',
  status: 'APPLIED',
  phase: null,
  failure_code: null,
  failure_message: null,
  overtaken: false,
  retry_of: null,
  stack_version: 3,
  inputs: { queues: { sensitive: false, set: true, value: 'mail,reports' }, token: { sensitive: true, set: true } },
  created_via: 'cli',
  queue_position: null,
  plan_only: false,
  auto_apply: true,
  planned_at: null,
  confirm_by: null,
  confirmed_at: null,
  plan: { add: 3, change: 0, remove: 0 },
  created_by: exampleId('user'),
  created_at: isoTime,
  started_at: isoTime,
  ended_at: isoTime,
  changes: { operation: 'apply', add: 3, change: 0, remove: 0 },
  outputs: { folder: { sensitive: false, value: '/opt/queue' } },
  access: 'members',
  url: null,
  url_status: null,
  url_problem: null,
  expires_after: null,
  expires_at: null,
  check_drift: true,
  drift: null,
  drift_check_of: null,
  log_lines: 42,
};
const pending = {
  ...run,
  status: 'PENDING',
  started_at: null,
  ended_at: null,
  queue_position: 1,
  plan: null,
  changes: null,
  outputs: null,
  log_lines: 0,
};

const planned = {
  ...pending,
  status: 'PLANNED',
  phase: 'plan',
  auto_apply: false,
  queue_position: null,
  started_at: isoTime,
  planned_at: isoTime,
  confirm_by: laterIsoTime,
  plan: { add: 3, change: 0, remove: 0 },
};

const who = 'Requires a management key of the organization of the cluster; members use the portal.';
const sees = 'Any API key sees the runs on clusters of its organization; a platform administrator sees all.';
const queue = 'Each cluster runs one run at a time; up to 10 more wait, then the API returns 409 `QUEUE_FULL`.';

export const runs: Tag = {
  name: 'Runs',
  description: 'Stacks applied to clusters with OpenTofu or Terraform. Times are ISO 8601.',
  operations: {
    'GET /v1/runner': {
      operationId: 'retrieveRunner',
      summary: 'Check whether stacks can be applied',
      description:
        'Returns whether this installation can run OpenTofu or Terraform. If it cannot, platform administrators see ' +
        'what is missing. Requires a management key.',
      answer: { available: true, problem: null },
    },
    'POST /v1/stacks/{name}/apply': {
      operationId: 'applyStack',
      summary: 'Apply a stack to a cluster',
      description:
        'Starts a run on a cluster or on one of its nodes, after checking all inputs. With `plan_only` the run ends ' +
        'after the plan; with `auto_apply: false` the plan waits up to 24 hours to be confirmed or discarded, and the ' +
        `cluster waits with it. ${queue} ${who}`,
      request: {
        cluster_id: run.cluster_id,
        node: 'gpu-1',
        inputs: { queues: 'mail,reports', workers: 2 },
        access: 'members',
      },
      answer: pending,
    },
    'GET /v1/runs': {
      operationId: 'listRuns',
      summary: 'List runs',
      description:
        'Returns a page of runs, newest first, that match all filters. Drift checks are listed only with ' +
        `\`drift_checks=true\`. ${sees}`,
      answer: numberedPage(run),
    },
    'GET /v1/runs/{id}': {
      operationId: 'retrieveRun',
      summary: 'Retrieve a run',
      description: `Returns one run with its status, changes and outputs; sensitive outputs have no value. ${sees}`,
      answer: run,
    },
    'GET /v1/runs/{id}/logs': {
      operationId: 'retrieveRunLog',
      summary: 'Read or follow the log of a run',
      description:
        'Returns log lines after `after`; with `Accept: text/event-stream` it streams them, resumes at `Last-Event-ID`, ' +
        'and ends with the event `status`, or `error` if the reader loses access. Lines are deleted 90 days after the ' +
        `run ended. ${sees}`,
      answer: {
        data: [
          { seq: 1, at: isoTime, phase: 'init', level: 'info', type: 'text', message: 'Initializing the backend...' },
        ],
        next_after: 1,
        expired: false,
        complete: false,
      },
    },
    'GET /v1/runs/{id}/plan': {
      operationId: 'retrieveRunPlan',
      summary: 'Retrieve the plan of a run',
      description:
        'Returns the changes of a plan, resource by resource, without sensitive values. Returns 404 until the plan is ' +
        `ready, and for runs that apply at once. ${sees}`,
      answer: {
        run_id: run.id,
        planned_at: isoTime,
        resources: [
          {
            address: 'terraform_data.queue',
            action: 'update',
            attributes: [{ name: 'input', sensitive: false, unknown: false, before: 'mail', after: 'mail,reports' }],
          },
        ],
        truncated: false,
      },
    },
    'POST /v1/runs/{id}/confirm': {
      operationId: 'confirmRun',
      summary: 'Apply the plan of a run',
      description:
        'Applies the plan of a `PLANNED` run as it is, also of a destroy, before other runs of the cluster. The run fails with ' +
        `\`PLAN_STALE\` if the state or the cluster changed since. ${who}`,
      answer: {
        ...planned,
        status: 'PENDING',
        phase: null,
        queue_position: 1,
        confirm_by: null,
        confirmed_at: isoTime,
      },
    },
    'PATCH /v1/runs/{id}': {
      operationId: 'updateRun',
      summary: 'Change expiry or drift checks of a run',
      description:
        'Changes when Headgate destroys the resources of an `APPLIED` run, and whether it checks them for drift by ' +
        'itself. Returns 409 for other runs, and for an expiry while the resources are being destroyed. ' +
        who,
      request: { expires_at: laterIsoTime },
      answer: { ...run, expires_at: laterIsoTime },
    },
    'POST /v1/runs/{id}/drift-check': {
      operationId: 'checkRunForDrift',
      summary: 'Check a run for drift',
      description:
        'Starts a run that checks what an `APPLIED` run created, and changes nothing. Its plan shows the resources that ' +
        'were changed or deleted outside of Headgate; `drift` of the applied run has the result. Returns 409 for other ' +
        `runs. ${queue} ${who}`,
      answer: { ...pending, plan_only: true, auto_apply: false, check_drift: false, drift_check_of: run.id },
    },
    'POST /v1/runs/{id}/discard': {
      operationId: 'discardRun',
      summary: 'Discard the plan of a run',
      description: `Ends a \`PLANNED\` run without changing anything. ${who}`,
      answer: { ...planned, status: 'DISCARDED', confirm_by: null, ended_at: isoTime },
    },
    'POST /v1/runs/{id}/cancel': {
      operationId: 'cancelRun',
      summary: 'Cancel a run',
      description:
        'Cancels a pending run immediately, and an active one once Terraform has written its state, at most 30 seconds ' +
        `later. ${who}`,
      answer: { ...pending, status: 'CANCELED', queue_position: null, ended_at: isoTime },
    },
    'POST /v1/runs/{id}/retry': {
      operationId: 'retryRun',
      summary: 'Retry a run',
      description:
        `Runs the same stack version with the same inputs again, as a new run. ${queue} Requires a management key that ` +
        'may apply the stack.',
      answer: { ...pending, retry_of: run.id },
    },
    'POST /v1/runs/{id}/destroy': {
      operationId: 'destroyRun',
      summary: 'Destroy what a run created',
      description:
        'Starts a run that removes everything the stack created on the cluster. With `plan_only` the run ends after the ' +
        'plan; with `auto_apply: false` the plan waits to be confirmed or discarded, as that of an apply. ' +
        `${queue} ${who}`,
      request: { auto_apply: false },
      answer: { ...pending, operation: 'destroy', auto_apply: false },
    },
    'POST /v1/runs/{id}/forget': {
      operationId: 'forgetRun',
      summary: 'Forget what a run created',
      description:
        'Deletes the Terraform state of what a run created, without removing it from the cluster. For an `overtaken` ' +
        'run, later runs keep their state. Requires a management key of a platform administrator.',
      answer: { ...run, status: 'SUPERSEDED' },
    },
    'POST /v1/runs/{id}/open': {
      operationId: 'openRun',
      summary: 'Create a link to a run',
      description:
        'Returns a link to the web address of a run. For an address with access `members` the link works once and sets ' +
        `a cookie; returns 409 if the run has no web address. ${sees}`,
      answer: { url: 'https://scheduler--research.apps.example.com/', expires_at: laterIsoTime },
    },
  },
};
