import { parseDecimal, PICO_DIGITS } from '#base/money.ts';
import { utcText } from '#base/utc.ts';
import type { AlertLetter } from '#core/accounts/accounts.ts';
import type { AlertType } from './kinds.ts';

/** Texts of emails about alerts. */

export interface LetterEvent {
  readonly type: string;
  readonly data: Readonly<Record<string, unknown>>;
  readonly organizationName: string;
}

type Written = Pick<AlertLetter, 'subject' | 'paragraphs' | 'page'>;

/** Parts from which emails are written. */
interface LetterParts {
  readonly name: string;
  /** The text `of the organization "…" on Headgate`. */
  readonly of: string;
  /** Returns a field of the data as text; empty if there is none. */
  readonly text: (field: string) => string;
  /** Returns a field of the data that is a list. */
  readonly texts: (field: string) => readonly string[];
}

const ofKey =
  (subject: (name: string) => string, happened: string) =>
  ({ name, of, text }: LetterParts): Written => ({
    subject: subject(name),
    paragraphs: [`The API key "${text('name')}" (${text('prefix')}…${text('last4')}) ${of} ${happened}`],
    page: { text: 'API key', path: `/portal/keys/${encodeURIComponent(text('key_id'))}` },
  });

const userCharsMax = 80;

/** Names the spender. Clients choose the names of end users freely, so these are quoted and truncated. */
function spenderOf(text: LetterParts['text']): string {
  const id = text('scope_id');
  if (text('scope_type') !== 'user') return `${text('scope_type').replace('_', ' ')} ${id}`;
  const chars = Array.from(id.replaceAll('"', "'"));
  return `the end user "${chars.slice(0, userCharsMax).join('')}${chars.length > userCharsMax ? '…' : ''}"`;
}

const picoOf = (usd: string): bigint => parseDecimal(usd, PICO_DIGITS) ?? 0n;

const ofBudget = ({ name, of, text }: LetterParts): Written => {
  const resetsAt = text('resets_at') === '' ? null : utcText(Number(text('resets_at')) * 1000);
  // A budget can reject a request with money left, if the request may cost more than that.
  const hasRemainder = text('percent') === '100' && picoOf(text('spent')) < picoOf(text('amount'));
  const happened = hasRemainder ? 'has rejected a request' : `has reached ${text('percent')} %`;
  return {
    subject: `A budget of ${name} ${happened}`,
    paragraphs: [
      `The ${text('period')} budget of ${spenderOf(text)} ${of} ${happened}: ${text('spent')} USD of ${text('amount')} USD is spent${hasRemainder ? ', and the remainder does not cover the request' : ''}.`,
      text('mode') === 'hard'
        ? `Requests that would exceed the budget are rejected${resetsAt === null ? '. It does not reset by itself.' : ` until it resets at ${resetsAt}.`}`
        : `This budget only sends alerts and rejects no requests. ${resetsAt === null ? 'It does not reset by itself.' : `It resets at ${resetsAt}.`}`,
    ],
    page: { text: 'Budgets', path: '/portal/budgets' },
  };
};

const ofManyUsers = ({ name, of, text }: LetterParts): Written => {
  const users = `${text('end_users')} end users have spent ${text('percent')} % or more of their budget`;
  const what = `The ${text('period')} budget for each end user ${of}`;
  return {
    subject: `Many end users of ${name} have reached their budget`,
    paragraphs:
      text('is_over') === 'true'
        ? [
            `${what}: the period that began on ${text('period_start')} has ended. ${users}, and ${text('alerts')} alerts were sent.`,
          ]
        : [
            `${what} has sent ${text('alerts')} alerts in the period that began on ${text('period_start')}, the maximum. Other end users get no alert of their own. So far, ${users}.`,
            'Requests choose the names of end users. Anybody with one of your API keys can invent names.',
          ],
    page: { text: 'Budgets', path: '/portal/budgets' },
  };
};

/** Names the stack of a run and its place. */
function placeOf(text: LetterParts['text']): string {
  const node = text('node') === '' ? '' : ` (node ${text('node')})`;
  return `"${text('stack')}" on the cluster ${text('cluster') || text('cluster_id')}${node}`;
}

const runPage = (text: LetterParts['text']): Written['page'] => ({
  text: 'Run',
  path: `/portal/runs/${encodeURIComponent(text('run_id'))}`,
});

const ofRun =
  (happened: string) =>
  ({ name, of, text }: LetterParts): Written => {
    const code = text('failure_code') === '' ? '' : ` with ${text('failure_code')}`;
    const until =
      text('confirm_by') === '' ? [] : [`Confirm or discard the plan by ${utcText(Date.parse(text('confirm_by')))}.`];
    return {
      subject: `Run of ${text('stack')} ${happened}: ${name}`,
      paragraphs: [`The ${text('operation')} of ${placeOf(text)} ${of} ${happened}${code}.`, ...until],
      page: runPage(text),
    };
  };

const ofSilence =
  (happened: string, more: (seconds: string) => readonly string[]) =>
  ({ name, of, text, texts }: LetterParts): Written => {
    const named = texts('nodes').join(', ');
    const [count, shown] = [Number(text('count')), texts('nodes').length];
    const others = count > shown ? ` and ${count - shown} more` : '';
    return {
      subject: `Nodes of ${text('cluster')} ${happened}: ${name}`,
      paragraphs: [
        `Nodes of the cluster ${text('cluster')} ${of} ${happened}: ${named}${others}.`,
        ...more(text('silence_seconds')),
      ],
      page: { text: 'Cluster', path: `/portal/clusters/${encodeURIComponent(text('cluster_id'))}` },
    };
  };

const runbook = (anchor: string): string =>
  `What to do: see compose/runbooks.md#${anchor} in the Headgate documentation.`;

const problems: Readonly<Record<string, string>> = {
  backup_old: 'no recent backup',
  disk_nearly_full: 'disk nearly full',
  redis_nearly_full: 'Redis nearly full',
  platform_key_missing: 'platform key missing',
  reconcile_unexplained: 'unexplained differences in usage',
};

const letters: Readonly<Record<AlertType, (words: LetterParts) => Written>> = {
  'wallet.low_balance': ({ name, of, text }) => ({
    subject: `Low balance: ${name}`,
    paragraphs: [
      `The wallet ${of} has ${text('balance')} USD left, less than your alert threshold of ${text('alert_below')} USD.`,
      'Requests that cost more than the balance are rejected. Ask the operator of the gateway to add credit.',
    ],
    page: { text: 'Wallet', path: '/portal/wallet' },
  }),
  'budget.reached': ofBudget,
  'budget.exceeded': ofBudget,
  'budget.many_users': ofManyUsers,
  'cost_budget.reached': ({ name, of, text }) => ({
    subject: `The cost budget of ${name} has reached ${text('percent')} %`,
    paragraphs: [
      `Nodes and GPUs ${of} have cost ${text('spent')} ${text('currency')} in ${text('month')}, of a budget of ${text('amount')} ${text('currency')}. If all that runs now keeps running, the month will cost ${text('forecast')} ${text('currency')}.`,
      'Nothing is stopped. Release nodes that you do not need, or change the budget.',
    ],
    page: { text: 'Costs', path: '/portal/costs' },
  }),
  'api_key.created': ofKey((name) => `New API key for ${name}`, 'was created.'),
  'api_key.rotated': ofKey((name) => `API key of ${name} rotated`, 'was rotated and has a new secret.'),
  'api_key.revoked': ofKey((name) => `API key of ${name} revoked`, 'was revoked. Requests with this key are rejected.'),
  'api_key.reported': ofKey(
    (name) => `Leaked API key secret of ${name}`,
    'had a secret that was reported as leaked. That secret no longer works.',
  ),
  'api_key.expiring': ofKey(
    (name) => `API key of ${name} expires soon`,
    'expires in less than one week. Create a new key if programs still use it.',
  ),
  'run.succeeded': ofRun('succeeded'),
  'run.failed': ofRun('failed'),
  'run.canceled': ofRun('was canceled'),
  'run.needs_confirmation': ofRun('waits for confirmation'),
  'run.expiring': ({ name, of, text }) => ({
    subject: `${text('stack')} expires soon: ${name}`,
    paragraphs: [
      `${placeOf(text)} ${of} expires at ${utcText(Date.parse(text('expires_at')))}. Headgate then destroys its resources.`,
      'To keep them, change or remove the expiry on the page of the run.',
    ],
    page: runPage(text),
  }),
  'run.drifted': ({ name, of, text }) => ({
    subject: `${text('stack')} has drifted: ${name}`,
    paragraphs: [
      `Resources of ${placeOf(text)} ${of} were changed or deleted outside of Headgate: ${text('changed')} changed, ${text('deleted')} deleted.`,
      'The page of the run shows what differs. Apply the stack again to restore what was applied.',
    ],
    page: runPage(text),
  }),
  'cluster.nodes_silent': ofSilence('fell silent', (seconds) => [
    `They have sent no heartbeat for ${seconds} seconds. Check the machines, or release nodes that you no longer have.`,
  ]),
  'cluster.nodes_back': ofSilence('are back', (seconds) => [`They have sent heartbeats for ${seconds} seconds.`]),
  'engine.failed': ({ text }) => ({
    subject: `Engine ${text('engine')} failed`,
    paragraphs: [
      `Engine "${text('engine')}" failed${text('cause') === '' ? '.' : `: ${text('cause')}`}`,
      `"headgate engines show ${text('engine')}" shows the state of the engine and, if the gateway tries again, when.`,
      runbook('enginefailed'),
    ],
    page: { text: 'Engine', path: `/portal/engines/${encodeURIComponent(text('engine'))}` },
  }),
  'gateways.differ': ({ text, texts }) => ({
    subject: 'Gateways differ',
    paragraphs: [
      `The gateways of one database must have the same files, settings, keys and versions. For longer than a rollout takes, they have had ${text('count')} differences:`,
      ...texts('differences'),
      runbook('gatewaysdiffer'),
    ],
    page: { text: 'Engines', path: '/portal/engines' },
  }),
  'platform.problem': ({ text }) => ({
    subject: `Platform problem: ${problems[text('problem')] ?? text('problem').replaceAll('_', ' ')}`,
    paragraphs: [text('text'), `What to do: see ${text('runbook')} in the Headgate documentation.`],
    page: { text: 'Overview', path: '/portal' },
  }),
  'webhook.disabled': ({ name, of, text }) => ({
    subject: `Webhook of ${name} disabled`,
    paragraphs: [
      text('reason') === 'gone'
        ? `The webhook to ${text('origin')} ${of} was disabled: its receiver returned 410, permanently removed.`
        : `The webhook to ${text('origin')} ${of} was disabled: no event has been delivered for three days.`,
      'Pending events are kept for a limited time. Fix the receiver, enable the webhook, and send them again.',
    ],
    page: { text: 'Webhook', path: `/portal/webhooks/${encodeURIComponent(text('webhook_id'))}` },
  }),
  'webhook.test': ({ name }) => ({
    subject: `Test alert of ${name}`,
    paragraphs: ['This is a test. No action is needed.'],
    page: null,
  }),
};

const isWritten = (type: string): type is AlertType => Object.hasOwn(letters, type);

export function letterOf({ type, data, organizationName: name }: LetterEvent): Written {
  const text = (field: string): string => lineOf(data[field]);
  const texts = (field: string): readonly string[] => {
    const value = data[field];
    return Array.isArray(value) ? value.map((one) => lineOf(nameOf(one))) : [];
  };
  // The event was written by a version with more kinds.
  if (!isWritten(type)) return { subject: `Alert for ${name}`, paragraphs: [`Event type: ${type}.`], page: null };
  return letters[type]({ name, of: `of the organization "${name}" on Headgate`, text, texts });
}

/** Returns the name of an object; other values as they are. */
const nameOf = (value: unknown): unknown =>
  typeof value === 'object' && value !== null && 'name' in value ? value.name : value;

/** Returns a value as one line, whoever wrote it, so that only the email itself starts paragraphs. */
function lineOf(value: unknown): string {
  const isText = typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';
  return isText ? String(value).replaceAll(/[\s\p{C}]+/gu, ' ') : '';
}
