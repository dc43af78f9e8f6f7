import { z } from 'zod';
import {
  cleanLine,
  type Command,
  type CommandContext,
  confirm,
  exitCodes,
  FailedError,
  jsonText,
  parseAnswer,
  pathOf,
  printList,
  queryText,
  readCursorList,
  textFlag,
  textFlags,
  timeText,
  UsageError,
  yesOption,
} from '#edge/cli/shell/shell.ts';

/** Commands over webhooks. Fields that a newer gateway adds to its answers are ignored. */

const webhook = z.looseObject({
  id: z.string(),
  url: z.string(),
  description: z.string(),
  events: z.array(z.string()).nullable(),
  enabled: z.boolean(),
  disabled_reason: z.string().nullable(),
  failing_since: z.number().nullable(),
});
type Webhook = z.output<typeof webhook>;

const withSecret = z.looseObject({
  ...webhook.shape,
  secret: z.string(),
  former_secret_ends_at: z.number().nullable(),
});

const delivery = z.looseObject({
  id: z.string(),
  event_id: z.string(),
  type: z.string(),
  status: z.string(),
  attempts: z.number(),
  last_status: z.number().nullable(),
  last_error: z.string().nullable(),
  next_attempt_at: z.number().nullable(),
  created_at: z.number(),
});
type Delivery = z.output<typeof delivery>;

const collection = '/v1/webhooks';
const all = Number.POSITIVE_INFINITY;

const org = (context: CommandContext) => ({ organization_id: textFlag(context, 'org') });

const readAll = (context: CommandContext): Promise<readonly Webhook[]> =>
  readCursorList(context, { path: collection, item: webhook, query: org(context), limit: all, parameter: 'cursor' });

function stateText({ enabled, disabled_reason: reason, failing_since: since }: Webhook): string {
  if (!enabled) return reason === null ? 'off' : `off: ${reason}`;
  return since === null ? 'on' : 'failing';
}

const row = (one: Webhook): string[] => [one.id, one.url, one.events?.join(',') ?? 'all', stateText(one)];

async function list(context: CommandContext): Promise<number> {
  const none = 'the organization has no webhook; "headgate webhooks create" makes one';
  return printList(context, await readAll(context), { headings: ['WEBHOOK', 'ADDRESS', 'EVENTS', 'STATE'], row, none });
}

/** Returns the named events; undefined if none is named, null for all events. */
function eventsOf(context: CommandContext): readonly string[] | null | undefined {
  const named = textFlags(context, 'event');
  if (named.length === 0) return undefined;
  return named.includes('all') ? null : named;
}

function tellSecret({ out, json }: CommandContext, answer: unknown): number {
  const { id, url, secret, former_secret_ends_at: end } = parseAnswer(withSecret, answer);
  const former = end === null ? '' : `; the secret before signs until ${timeText(end)} UTC`;
  const text = `webhook ${id} to ${cleanLine(url)}; its secret is shown this once, so keep it${former}:\n\n  ${secret}\n\n`;
  out(json ? jsonText(answer) : text);
  return exitCodes.ok;
}

async function create(context: CommandContext): Promise<number> {
  const [url] = context.words;
  const description = textFlag(context, 'description');
  const events = eventsOf(context);
  const body = { url, ...(description !== null && { description }), ...(events !== undefined && { events }) };
  return tellSecret(context, await context.api.call('POST', collection + queryText(org(context)), { body }));
}

/** Finds a webhook by its id, or by its address if exactly one webhook has it. @throws FailedError */
async function find(context: CommandContext): Promise<Webhook> {
  const [word = ''] = context.words;
  const found = (await readAll(context)).filter(({ id, url }) => id === word || url === word);
  const [one, ...others] = found;
  if (one === undefined) {
    throw new FailedError(`no webhook is ${JSON.stringify(word)}; "headgate webhooks ls" lists them`);
  }
  if (others.length === 0) return one;
  throw new FailedError(`several webhooks have this address; say which: ${found.map(({ id }) => id).join(', ')}`);
}

const pathTo = (context: CommandContext, { id }: Webhook, rest = ''): string =>
  pathOf(collection, id) + rest + queryText(org(context));

async function edit(context: CommandContext): Promise<number> {
  const { flags } = context;
  if (flags['on'] === true && flags['off'] === true) throw new UsageError('--on and --off contradict each other');
  const [url, description, events] = [textFlag(context, 'url'), textFlag(context, 'description'), eventsOf(context)];
  const body = {
    ...(url !== null && { url }),
    ...(description !== null && { description }),
    ...(events !== undefined && { events }),
    ...(flags['on'] === true && { enabled: true }),
    ...(flags['off'] === true && { enabled: false }),
  };
  if (Object.keys(body).length === 0) throw new UsageError('nothing is to be changed: "headgate webhooks edit --help"');
  const answer = await context.api.call('PATCH', pathTo(context, await find(context)), { body });
  const changed = parseAnswer(webhook, answer);
  context.out(context.json ? jsonText(answer) : `${row(changed).map(cleanLine).join('  ')}\n`);
  return exitCodes.ok;
}

async function remove(context: CommandContext): Promise<number> {
  const one = await find(context);
  await confirm(context, {
    question: `Delete the webhook to ${one.url} (${one.id})?`,
    consequence: 'Nothing more is sent there, and the list of what was sent is gone too.',
    done: 'deleted',
  });
  const answer = await context.api.call('DELETE', pathTo(context, one));
  context.out(context.json ? jsonText(answer) : `${one.id}: deleted\n`);
  return exitCodes.ok;
}

async function rotate(context: CommandContext): Promise<number> {
  const grace = textFlag(context, 'grace-seconds') ?? '86400';
  if (!/^\d{1,9}$/.test(grace)) throw new UsageError('--grace-seconds must be a whole number');
  const path = pathTo(context, await find(context), '/rotate');
  return tellSecret(context, await context.api.call('POST', path, { body: { grace_seconds: Number(grace) } }));
}

function resultText({ status, last_status: code, last_error: error }: Delivery): string {
  const said = [code === null ? '' : String(code), error === null || error === 'status' ? '' : error];
  return [status, ...said].filter((part) => part !== '').join(' ');
}

const deliveryRow = (one: Delivery): string[] => [
  one.id,
  timeText(one.created_at),
  one.type,
  resultText(one),
  String(one.attempts),
  one.next_attempt_at === null ? '' : timeText(one.next_attempt_at),
];

function tellDelivery({ out, json }: CommandContext, answer: unknown): number {
  const { id, type, event_id: event } = parseAnswer(delivery, answer);
  const text = `${id}: ${type} ${event} is sent within a second or two; "headgate webhooks deliveries" says what came of it\n`;
  out(json ? jsonText(answer) : text);
  return exitCodes.ok;
}

async function test(context: CommandContext): Promise<number> {
  return tellDelivery(context, await context.api.call('POST', pathTo(context, await find(context), '/test')));
}

async function deliveries(context: CommandContext): Promise<number> {
  const said = textFlag(context, 'limit') ?? '50';
  if (!/^[1-9]\d{0,5}$/.test(said)) throw new UsageError('--limit must be a whole number of 1 or more');
  const path = `${pathOf(collection, (await find(context)).id)}/deliveries`;
  const request = { path, item: delivery, query: org(context), limit: Number(said), parameter: 'cursor' } as const;
  const headings = ['DELIVERY', 'SINCE (UTC)', 'EVENT', 'RESULT', 'TRIES', 'NEXT TRY (UTC)'];
  const none = 'nothing was sent in the last 30 days';
  return printList(context, await readCursorList(context, request), { headings, row: deliveryRow, none });
}

async function replay(context: CommandContext): Promise<number> {
  const rest = `/deliveries/${encodeURIComponent(context.words[1] ?? '')}/replay`;
  return tellDelivery(context, await context.api.call('POST', pathTo(context, await find(context), rest)));
}

const orgOption = { org: { type: 'string', about: 'another organization, for platform admins' } } as const;
const eventOption = {
  event: { type: 'string', multiple: true, about: 'a kind of events, such as budget.exceeded; all if not said' },
} as const;
const oneWord = { min: 1, max: 1 } as const;

export const webhookCommands: readonly Command[] = [
  {
    name: 'webhooks ls',
    usage: '[--org ID]',
    summary: 'List the webhooks that events of an organization are sent to.',
    words: { min: 0, max: 0 },
    options: orgOption,
    run: list,
  },
  {
    name: 'webhooks create',
    usage: 'URL [--event KIND]… [--description TEXT] [--org ID]',
    summary: 'Have events sent to an address, signed, and show the secret this once.',
    words: oneWord,
    options: { ...eventOption, description: { type: 'string', about: 'what it is for' }, ...orgOption },
    run: create,
  },
  {
    name: 'webhooks edit',
    usage: 'ID|URL [--url URL] [--event KIND]… [--description TEXT] [--on|--off] [--org ID]',
    summary: 'Change a webhook, switch it off or on.',
    words: oneWord,
    options: {
      url: { type: 'string', about: 'another address' },
      event: { type: 'string', multiple: true, about: 'a kind of events, or all' },
      description: { type: 'string', about: 'what it is for' },
      on: { type: 'boolean', about: 'send there' },
      off: { type: 'boolean', about: 'send nothing there' },
      ...orgOption,
    },
    run: edit,
  },
  {
    name: 'webhooks rm',
    usage: 'ID|URL [--org ID] [--yes]',
    summary: 'Delete a webhook with the list of what was sent; asks before.',
    words: oneWord,
    options: { ...yesOption, ...orgOption },
    run: remove,
  },
  {
    name: 'webhooks rotate',
    usage: 'ID|URL [--grace-seconds N] [--org ID]',
    summary: 'Give a webhook another secret, and show it this once.',
    words: oneWord,
    options: {
      'grace-seconds': { type: 'string', about: 'for so long that of today signs too; 86400 if not said' },
      ...orgOption,
    },
    run: rotate,
  },
  {
    name: 'webhooks test',
    usage: 'ID|URL [--org ID]',
    summary: 'Send a test to a webhook.',
    words: oneWord,
    options: orgOption,
    run: test,
  },
  {
    name: 'webhooks deliveries',
    usage: 'ID|URL [--limit N] [--org ID]',
    summary: 'List what was sent to a webhook, and what came of it.',
    words: oneWord,
    options: { limit: { type: 'string', about: '50 if not said' }, ...orgOption },
    run: deliveries,
  },
  {
    name: 'webhooks replay',
    usage: 'ID|URL DELIVERY [--org ID]',
    summary: 'Send again what was sent to a webhook.',
    words: { min: 2, max: 2 },
    options: orgOption,
    run: replay,
  },
];
