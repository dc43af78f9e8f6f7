import { badge, html, type Html } from '#edge/portal/ui/ui.ts';
import type { RunAnswer, RunStatusAnswer } from './answers.ts';

/** Words for the states of runs and for the reasons of failures. */

type Kind = 'good' | 'busy' | 'bad' | 'plain';

const statusWords: Readonly<Record<RunStatusAnswer, readonly [Kind, string, string]>> = {
  PENDING: ['busy', 'waiting', 'It waits until its cluster is free: runs of one cluster go one after the other.'],
  PLANNING: ['busy', 'planning', 'Terraform fetches what the stack needs and works out what has to be done.'],
  APPLYING: ['busy', 'applying', 'Terraform does what it has planned.'],
  APPLIED: ['good', 'applied', 'It is done, and what it made is there.'],
  SUPERSEDED: ['plain', 'superseded', 'A later run of the same stack took its place here.'],
  DESTROYING: ['busy', 'destroying', 'Terraform removes what the stack has made.'],
  DESTROYED: ['plain', 'destroyed', 'What the stack had made is removed.'],
  CANCELING: ['busy', 'canceling', 'It ends as soon as Terraform has written down what it has done.'],
  CANCELED: ['plain', 'canceled', 'It was ended before it was done. What it had made until then is still there.'],
  FAILED: ['bad', 'failed', 'It did not get to its end.'],
};

export function statusBadge({ status }: Pick<RunAnswer, 'status'>): Html {
  const [kind, text] = statusWords[status];
  return badge(kind, text);
}

export const statusText = (status: RunStatusAnswer): string => statusWords[status][1];

export const statusSentence = ({ status }: Pick<RunAnswer, 'status'>): string => statusWords[status][2];

const unfinished: ReadonlySet<RunStatusAnswer> = new Set([
  'PENDING',
  'PLANNING',
  'APPLYING',
  'DESTROYING',
  'CANCELING',
]);

/** True if the run waits or runs. */
export const isUnfinished = ({ status }: Pick<RunAnswer, 'status'>): boolean => unfinished.has(status);

/** Actions that the API accepts in the run's state. */
export function choicesOf(run: Pick<RunAnswer, 'status'>) {
  const { status } = run;
  const hasEndedBadly = status === 'FAILED' || status === 'CANCELED';
  const mayHaveMade = hasEndedBadly || status === 'APPLIED' || status === 'SUPERSEDED';
  return {
    cancel: isUnfinished(run) && status !== 'CANCELING',
    retry: hasEndedBadly,
    destroy: mayHaveMade,
    forget: !isUnfinished(run) && status !== 'DESTROYED',
  };
}

const failures: Readonly<Record<string, readonly [string, string]>> = {
  INIT_FAILED: [
    'Terraform could not get ready.',
    'Mostly a provider or a module cannot be fetched: see the last lines of the log, then mend the stack or the mirror, and try again.',
  ],
  PLAN_FAILED: [
    'Terraform could not work out what to do; nothing was changed.',
    'Mostly an input is wrong or a node is not reachable: see the log, and apply the stack anew with other inputs, or try again.',
  ],
  APPLY_FAILED: [
    'Terraform stopped half-way; what it had made until then is kept.',
    'See the log for the step that failed. Trying again goes on from here; destroying takes away what is there.',
  ],
  DESTROY_FAILED: [
    'Not everything could be removed.',
    'See the log for what is left. Try again when its node is reachable.',
  ],
  TIMEOUT: ['It took longer than a run may.', 'See where the log stops. Trying again goes on from here.'],
  INTERRUPTED: [
    'What ran it ended without a word, or its machine is gone.',
    'Trying again goes on from what is known to be there.',
  ],
  STATE_SAVE_FAILED: [
    'What was made is there, and what Terraform knows of it could not be kept.',
    'Have an administrator of the platform look at the database and the log before anything is tried again.',
  ],
  STATE_NOT_SAVED: [
    'What an earlier run made is not on record yet; nothing was done over it.',
    'An administrator of the platform sees to the run that it names, or forgets it.',
  ],
  RUNNER_UNAVAILABLE: [
    'Nothing here can run Terraform.',
    'An administrator of the platform has to install OpenTofu or Terraform, and what runs are walled in by.',
  ],
  CLUSTER_GONE: ['Its cluster was deleted or is another organization’s.', 'Apply the stack to another cluster.'],
};

/** Returns what happened and what to do; null for a run that has not failed. */
export function failureWords({
  failure_code: code,
}: Pick<RunAnswer, 'failure_code'>): readonly [string, string] | null {
  if (code === null) return null;
  return failures[code] ?? [`It failed: ${code}.`, 'See the log.'];
}

const steps = ['waiting', 'getting ready', 'planning', 'working', 'done'] as const;

function stepOf({ status, phase }: RunAnswer): number {
  if (status === 'PENDING') return 0;
  if (!isUnfinished({ status })) return steps.length - 1;
  if (phase === 'apply') return 3;
  return phase === 'plan' ? 2 : 1;
}

/** Shows the progress of a run in steps. The duration of a step is unknown. */
export function progress(run: RunAnswer): Html {
  const at = stepOf(run);
  return html`<ol class="progress" aria-label="Progress">
    ${steps.map((text, index) => html`<li class="${index < at ? 'past' : index === at ? 'now' : ''}" ${index === at ? html`aria-current="step"` : null}>${text}</li>`)}
  </ol>`;
}
