import type { RunAnswer, RunStatusAnswer } from '#edge/contract/runs.ts';
import { badge, html, type Html } from '#edge/portal/ui/ui.ts';
import { moment } from './widgets.ts';

/** Words for the states of runs and for the reasons of failures. */

type Kind = 'good' | 'busy' | 'bad' | 'plain';

const statusWords: Readonly<Record<RunStatusAnswer, readonly [Kind, string, string]>> = {
  PENDING: ['busy', 'pending', 'The run waits for its cluster. Each cluster runs one run at a time.'],
  PLANNING: ['busy', 'planning', 'Terraform downloads providers and modules, and plans the changes.'],
  PLANNED: [
    'busy',
    'waits for confirmation',
    'The plan changes nothing until somebody confirms it. Other runs of the cluster wait too.',
  ],
  APPLYING: ['busy', 'applying', 'Terraform applies the plan.'],
  APPLIED: ['good', 'applied', 'The run succeeded, and its resources exist.'],
  SUPERSEDED: ['plain', 'superseded', 'A later run of the same stack replaced this one.'],
  DESTROYING: ['busy', 'destroying', 'Terraform removes the resources of the stack.'],
  DESTROYED: ['plain', 'destroyed', 'The resources of the stack are removed.'],
  CANCELING: ['busy', 'canceling', 'The run stops once Terraform has saved its state.'],
  CANCELED: ['plain', 'canceled', 'The run was canceled. Resources that it had created still exist.'],
  DISCARDED: ['plain', 'discarded', 'The plan was discarded. The run changed nothing.'],
  PLANNED_AND_FINISHED: ['plain', 'planned', 'The run made a plan only. It changed nothing.'],
  FAILED: ['bad', 'failed', 'The run failed.'],
};

export function statusBadge({
  status,
  drift_check_of: checked,
  plan,
}: Pick<RunAnswer, 'status' | 'drift_check_of' | 'plan'>): Html {
  if (checked !== null && status === 'PLANNED_AND_FINISHED' && plan !== null)
    return plan.change + plan.remove > 0 ? badge('bad', 'drifted') : badge('good', 'no drift');
  const [kind, text] = statusWords[status];
  return badge(kind, text);
}

/** Marks an applied run that has drifted; null for other runs. */
export const driftBadge = ({ drift }: Pick<RunAnswer, 'drift'>): Html | null =>
  drift?.status === 'drifted' ? badge('bad', 'drifted') : null;

export const statusText = (status: RunStatusAnswer): string => statusWords[status][1];

const checkSentences: Readonly<Partial<Record<RunStatusAnswer, string>>> = {
  PLANNING: 'Terraform compares the resources with what was applied. It changes nothing.',
  CANCELED: 'The check was canceled. It changed nothing.',
  PLANNED_AND_FINISHED: 'The check is complete. It changed nothing.',
};

export const statusSentence = ({
  status,
  drift_check_of: checked,
}: Pick<RunAnswer, 'status' | 'drift_check_of'>): string =>
  (checked === null ? undefined : checkSentences[status]) ?? statusWords[status][2];

const unfinished: ReadonlySet<RunStatusAnswer> = new Set([
  'PENDING',
  'PLANNING',
  'PLANNED',
  'APPLYING',
  'DESTROYING',
  'CANCELING',
]);

/** True if the run waits or runs. */
export const isUnfinished = ({ status }: Pick<RunAnswer, 'status'>): boolean => unfinished.has(status);

/** Actions that the API accepts in the run's state. */
export function choicesOf(run: Pick<RunAnswer, 'status' | 'drift_check_of'>) {
  const { status, drift_check_of: checked } = run;
  const hasEndedBadly = checked === null && (status === 'FAILED' || status === 'CANCELED');
  const mayHaveMade = hasEndedBadly || status === 'APPLIED' || status === 'SUPERSEDED';
  return {
    decide: status === 'PLANNED',
    cancel: isUnfinished(run) && status !== 'CANCELING' && status !== 'PLANNED',
    retry: hasEndedBadly,
    expire: status === 'APPLIED',
    destroy: mayHaveMade,
    forget: mayHaveMade,
  };
}

const failures: Readonly<Record<string, readonly [string, string]>> = {
  INIT_FAILED: [
    'Terraform could not initialize.',
    'Usually a provider or module cannot be downloaded. Check the last lines of the log, fix the stack or the mirror, and retry.',
  ],
  PLAN_FAILED: [
    'Terraform could not create a plan. Nothing was changed.',
    'Usually an input is wrong or a node is unreachable. Check the log, then apply the stack with other inputs, or retry.',
  ],
  PLAN_STALE: [
    'The plan no longer fits the cluster or what is applied there. Nothing was changed.',
    'Apply the stack again to get a new plan.',
  ],
  APPLY_FAILED: [
    'Terraform failed before it applied everything. Resources created until then still exist.',
    'Check the log for the failed step. Retry to continue, or destroy to remove these resources.',
  ],
  DESTROY_FAILED: [
    'Some resources could not be removed.',
    'Check the log for the remaining resources. Retry once their node is reachable.',
  ],
  TIMEOUT: [
    'The run exceeded its time limit, or waited in the queue for too long.',
    'Check the end of the log, then retry.',
  ],
  INTERRUPTED: [
    'Terraform was killed, or its machine is unreachable.',
    'Retry to continue from the last stored state.',
  ],
  STATE_SAVE_FAILED: [
    'Resources exist, but the Terraform state could not be stored.',
    'A platform administrator must check the database and the log before you retry.',
  ],
  STATE_NOT_SAVED: [
    'The state of an earlier run is not stored yet, so this run changed nothing.',
    'The gateway tries again every minute; retry once the state is stored. A platform administrator can fix the cause, named in the gateway log, or forget the earlier run.',
  ],
  RUNNER_UNAVAILABLE: [
    'This gateway could not execute the run.',
    'A platform administrator finds the cause with headgate doctor, or in the gateway log.',
  ],
  CLUSTER_GONE: [
    'The cluster was archived, or belongs to another organization.',
    'Apply the stack to another cluster.',
  ],
};

/** Returns what happened and what to do; null for a run that has not failed. */
export function failureWords({
  failure_code: code,
  drift_check_of: checked,
}: Pick<RunAnswer, 'failure_code' | 'drift_check_of'>): readonly [string, string] | null {
  if (code === null) return null;
  const [what, then] = failures[code] ?? [`The run failed: ${code}.`, 'Check the log.'];
  // A check cannot be retried.
  return [what, checked === null ? then : 'Check the log, then check the applied run for drift again.'];
}

const steps = ['pending', 'preparing', 'planning', 'executing', 'done'] as const;

function stepOf({ status, phase }: RunAnswer): number {
  if (status === 'PENDING') return 0;
  if (!isUnfinished({ status })) return steps.length - 1;
  if (phase === 'apply') return 3;
  if (status === 'PLANNED') return 2;
  return phase === 'plan' ? 2 : 1;
}

/** Shows the progress of a run in steps. The duration of a step is unknown. */
export function progress(run: RunAnswer): Html {
  const at = stepOf(run);
  return html`<ol class="progress" aria-label="Progress">
    ${steps.map((text, index) => html`<li class="${index < at ? 'past' : index === at ? 'now' : ''}" ${index === at ? html`aria-current="step"` : null}>${text}</li>`)}
  </ol>`;
}

const hour = 3600;
const day = 24 * hour;

/** Lives of a run, in seconds. */
export const lives = [
  { value: 'never', label: 'Never' },
  { value: String(hour), label: '1 hour' },
  { value: String(8 * hour), label: '8 hours' },
  { value: String(day), label: '1 day' },
  { value: String(3 * day), label: '3 days' },
  { value: String(7 * day), label: '1 week' },
  { value: String(30 * day), label: '30 days' },
];

/** Returns the seconds of a chosen life: null for never, undefined for what no form offers. */
export function lifeOf(chosen: string): number | null | undefined {
  if (chosen === 'never') return null;
  return lives.some(({ value }) => value === chosen) ? Number(chosen) : undefined;
}

/** Formats seconds in the largest unit that divides them: "3 days". */
function lifeText(seconds: number): string {
  const units = [
    [day, 'day'],
    [hour, 'hour'],
    [60, 'minute'],
    [1, 'second'],
  ] as const;
  const [size, unit] = units.find(([one]) => seconds % one === 0) ?? units[3];
  const count = seconds / size;
  return `${count.toLocaleString('en-US')} ${unit}${count === 1 ? '' : 's'}`;
}

/** Says when the resources of a run are destroyed; null for a run that applies nothing, or no longer. */
export function expiryText(run: RunAnswer): Html | null {
  const { expires_at: at, expires_after: after, operation, status } = run;
  if (at !== null) return moment(at);
  if (status !== 'APPLIED' && (operation === 'destroy' || run.plan_only || !isUnfinished(run))) return null;
  return html`<span class="quiet">${after === null ? 'never' : `${lifeText(after)} after the apply`}</span>`;
}
