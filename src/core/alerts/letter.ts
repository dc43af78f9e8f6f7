import { parseDecimal, PICO_DIGITS } from '#base/money.ts';
import { utcText } from '#base/utc.ts';
import type { AlertLetter } from '#core/accounts/accounts.ts';
import type { AlertType } from './kinds.ts';

/** Texts of mails about alerts. */

export interface Told {
  readonly type: string;
  readonly data: Readonly<Record<string, unknown>>;
  readonly organizationName: string;
}

type Written = Pick<AlertLetter, 'subject' | 'paragraphs' | 'page'>;

/** Parts from which mails are written. */
interface Words {
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
  ({ name, of, text }: Words): Written => ({
    subject: subject(name),
    paragraphs: [`The API key "${text('name')}" (${text('prefix')}…${text('last4')}) ${of} ${happened}`],
    page: { text: 'The key', path: `/portal/keys/${encodeURIComponent(text('key_id'))}` },
  });

const userCharsMax = 80;

/** Names the spender. Clients choose the names of end users freely, so these are quoted and truncated. */
function spenderOf(text: Words['text']): string {
  const id = text('scope_id');
  if (text('scope_type') !== 'user') return `${text('scope_type').replace('_', ' ')} ${id}`;
  const chars = Array.from(id.replaceAll('"', "'"));
  return `the end user "${chars.slice(0, userCharsMax).join('')}${chars.length > userCharsMax ? '…' : ''}"`;
}

const picoOf = (usd: string): bigint => parseDecimal(usd, PICO_DIGITS) ?? 0n;

const ofBudget = ({ name, of, text }: Words): Written => {
  const resetsAt = utcText(Number(text('resets_at')) * 1000);
  // A budget can reject a request with money left, if the request may cost more than that.
  const isLeft = text('percent') === '100' && picoOf(text('spent')) < picoOf(text('amount'));
  const happened = isLeft ? 'has refused a request' : `has reached ${text('percent')} percent`;
  return {
    subject: `A budget of ${name} ${happened}`,
    paragraphs: [
      `The ${text('period')} budget of ${spenderOf(text)} ${of} ${happened}: ${text('spent')} USD of ${text('amount')} USD are spent${isLeft ? ', and what is left does not pay for it' : ''}.`,
      text('mode') === 'hard'
        ? `Requests that would pass it are refused until it resets at ${resetsAt}.`
        : `It refuses nothing. It resets at ${resetsAt}.`,
    ],
    page: { text: 'The budgets', path: '/portal/budgets' },
  };
};

const ofManyUsers = ({ name, of, text }: Words): Written => {
  const users = `${text('end_users')} end users have spent ${text('percent')} percent of it or more`;
  const what = `The ${text('period')} budget of each end user ${of}`;
  return {
    subject: `A budget of ${name} has reached many end users`,
    paragraphs:
      text('is_over') === 'true'
        ? [
            `${what} has ended its period, that of ${text('period_start')}: ${users}. ${text('alerts')} alerts were sent.`,
          ]
        : [
            `${what} has sent ${text('alerts')} alerts in the period that began on ${text('period_start')}: those of other end users are not sent one by one. So far ${users}.`,
            'End users are called whatever requests say. Whoever has a key of yours may make names up.',
          ],
    page: { text: 'The budgets', path: '/portal/budgets' },
  };
};

const runbook = (anchor: string): string =>
  `What to do: compose/runbooks.md#${anchor} in the documentation of Headgate.`;

const letters: Readonly<Record<AlertType, (words: Words) => Written>> = {
  'wallet.low_balance': ({ name, of, text }) => ({
    subject: `The balance of ${name} is low`,
    paragraphs: [
      `The wallet ${of} has ${text('balance')} USD left, less than the ${text('alert_below')} USD that you wanted to be told of.`,
      'Requests that cost more than is left are refused. Whoever runs the gateway adds credit.',
    ],
    page: { text: 'The wallet', path: '/portal/wallet' },
  }),
  'budget.reached': ofBudget,
  'budget.exceeded': ofBudget,
  'budget.many_users': ofManyUsers,
  'api_key.created': ofKey((name) => `A new API key of ${name}`, 'was made.'),
  'api_key.rotated': ofKey((name) => `An API key of ${name} has another secret`, 'was given another secret.'),
  'api_key.revoked': ofKey((name) => `An API key of ${name} was revoked`, 'was revoked. Requests with it are refused.'),
  'api_key.reported': ofKey(
    (name) => `A secret of ${name} was reported as leaked`,
    'had a secret that somebody found and reported. That secret works no more.',
  ),
  'api_key.expiring': ofKey(
    (name) => `An API key of ${name} expires soon`,
    'expires in less than a week. Whoever needs it makes another one.',
  ),
  'engine.failed': ({ text }) => ({
    subject: `The engine ${text('engine')} failed`,
    paragraphs: [
      `The engine "${text('engine')}" failed${text('cause') === '' ? '.' : `: ${text('cause')}`}`,
      runbook('enginefailed'),
    ],
    page: { text: 'The engine', path: `/portal/engines/${encodeURIComponent(text('engine'))}` },
  }),
  'gateways.differ': ({ text, texts }) => ({
    subject: 'The gateways differ',
    paragraphs: [
      `The gateways of one database must have the same files, settings and keys. They differ in ${text('count')} points for longer than a rollout takes:`,
      ...texts('differences'),
      runbook('gatewaysdiffer'),
    ],
    page: { text: 'The engines', path: '/portal/engines' },
  }),
  'platform.problem': ({ text }) => ({
    subject: `A problem of the platform: ${text('problem').replaceAll('_', ' ')}`,
    paragraphs: [text('text'), `What to do: ${text('runbook')} in the documentation of Headgate.`],
    page: { text: 'The overview', path: '/portal' },
  }),
  'webhook.disabled': ({ name, of, text }) => ({
    subject: `A webhook of ${name} was switched off`,
    paragraphs: [
      text('reason') === 'gone'
        ? `The webhook to ${text('origin')} ${of} was switched off: its receiver says that it is gone for good (410).`
        : `The webhook to ${text('origin')} ${of} was switched off: nothing has arrived there for days.`,
      'What it was to get is kept for a while: who switches it on again can have it sent again.',
    ],
    page: { text: 'The webhook', path: `/portal/webhooks/${encodeURIComponent(text('webhook_id'))}` },
  }),
  'webhook.test': ({ name }) => ({ subject: `A test of ${name}`, paragraphs: ['Somebody tries it out.'], page: null }),
};

const isWritten = (type: string): type is AlertType => Object.hasOwn(letters, type);

export function letterOf({ type, data, organizationName: name }: Told): Written {
  const text = (field: string): string => lineOf(data[field]);
  const texts = (field: string): readonly string[] => {
    const value = data[field];
    return Array.isArray(value) ? value.map(lineOf) : [];
  };
  // The event was written by a version with more kinds.
  if (!isWritten(type))
    return { subject: `An alert of ${name}`, paragraphs: [`It is of the kind ${type}.`], page: null };
  return letters[type]({ name, of: `of the organization "${name}" on Headgate`, text, texts });
}

/** Returns a value as one line, whoever wrote it, so that only the mail itself starts paragraphs. */
function lineOf(value: unknown): string {
  const isText = typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';
  return isText ? String(value).replaceAll(/[\s\p{C}]+/gu, ' ') : '';
}
