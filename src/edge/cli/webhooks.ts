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
  type Read,
  readCursorList,
  textFlag,
  textFlags,
  timeText,
  UsageError,
  yesOption,
} from '#edge/cli/shell/shell.ts';

/** Commands over webhooks. Fields that a newer gateway adds to its answers are ignored. */

const webhook = async () => (await import('#edge/contract/webhooks.ts')).webhookSchema;
type Webhook = Read<typeof webhook>;

const withSecret = async () => (await import('#edge/contract/webhooks.ts')).createdWebhookSchema;

const delivery = async () => (await import('#edge/contract/webhooks.ts')).deliverySchema;
type Delivery = Read<typeof delivery>;

const collection = '/v1/webhooks';
const all = Number.POSITIVE_INFINITY;

const org = (context: CommandContext) => ({ organization_id: textFlag(context, 'org') });

const readAll = (context: CommandContext): Promise<readonly Webhook[]> =>
  readCursorList(context, {
    path: collection,
    item: webhook,
    query: org(context),
    limit: all,
    parameter: 'cursor',
  });

function stateText({ enabled, disabled_reason: reason, failing_since: since }: Webhook): string {
  if (!enabled) return reason === null ? 'off' : `off: ${reason}`;
  return since === null ? 'on' : 'failing';
}

const row = (one: Webhook): string[] => [one.id, one.url, one.events?.join(',') ?? 'all', stateText(one)];

async function list(context: CommandContext): Promise<number> {
  const none = 'no webhooks; create one with "headgate webhooks create URL"';
  return printList(context, await readAll(context), { headings: ['WEBHOOK', 'ADDRESS', 'EVENTS', 'STATE'], row, none });
}

/** Returns the named events; undefined if none is named, null for all events. */
function eventsOf(context: CommandContext): readonly string[] | null | undefined {
  const named = textFlags(context, 'event');
  if (named.length === 0) return undefined;
  return named.includes('all') ? null : named;
}

async function tellSecret({ out, json }: CommandContext, answer: unknown): Promise<number> {
  const { id, url, secret, former_secret_ends_at: end } = await parseAnswer(withSecret, answer);
  const former = end === null ? '' : `; the former secret also signs until ${timeText(end)} UTC`;
  const text = `webhook ${id} to ${cleanLine(url)}; its secret is shown only once, so store it now${former}:\n\n  ${secret}\n\n`;
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
    throw new FailedError(
      `no webhook has the id or address ${JSON.stringify(word)}; "headgate webhooks ls" lists the webhooks`,
    );
  }
  if (others.length === 0) return one;
  throw new FailedError(`several webhooks have this address; use an id: ${found.map(({ id }) => id).join(', ')}`);
}

const pathTo = (context: CommandContext, { id }: Webhook, rest = ''): string =>
  pathOf(collection, id) + rest + queryText(org(context));

async function edit(context: CommandContext): Promise<number> {
  const { flags } = context;
  if (flags['on'] === true && flags['off'] === true) throw new UsageError('give --on or --off, not both');
  const [url, description, events] = [textFlag(context, 'url'), textFlag(context, 'description'), eventsOf(context)];
  const body = {
    ...(url !== null && { url }),
    ...(description !== null && { description }),
    ...(events !== undefined && { events }),
    ...(flags['on'] === true && { enabled: true }),
    ...(flags['off'] === true && { enabled: false }),
  };
  if (Object.keys(body).length === 0)
    throw new UsageError('nothing to change; "headgate webhooks edit --help" lists the options');
  const answer = await context.api.call('PATCH', pathTo(context, await find(context)), { body });
  const changed = await parseAnswer(webhook, answer);
  context.out(context.json ? jsonText(answer) : `${row(changed).map(cleanLine).join('  ')}\n`);
  return exitCodes.ok;
}

async function remove(context: CommandContext): Promise<number> {
  const one = await find(context);
  await confirm(context, {
    question: `Delete the webhook to ${one.url} (${one.id})?`,
    consequence: 'No more events are sent there, and its list of deliveries is deleted.',
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

async function tellDelivery({ out, json }: CommandContext, answer: unknown): Promise<number> {
  const { id, type, event_id: event } = await parseAnswer(delivery, answer);
  const text = `${id}: ${type} ${event} is sent within a second or two; "headgate webhooks deliveries" shows the result\n`;
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
  const request = {
    path,
    item: delivery,
    query: org(context),
    limit: Number(said),
    parameter: 'cursor',
  } as const;
  const headings = ['DELIVERY', 'CREATED (UTC)', 'EVENT', 'RESULT', 'ATTEMPTS', 'NEXT ATTEMPT (UTC)'];
  const none = 'no deliveries in the last 30 days';
  return printList(context, await readCursorList(context, request), { headings, row: deliveryRow, none });
}

async function replay(context: CommandContext): Promise<number> {
  const rest = `/deliveries/${encodeURIComponent(context.words[1] ?? '')}/replay`;
  return tellDelivery(context, await context.api.call('POST', pathTo(context, await find(context), rest)));
}

const orgOption = { org: { type: 'string', about: 'another organization, for platform administrators' } } as const;
const eventOption = {
  event: {
    type: 'string',
    multiple: true,
    about: 'event type, such as budget.exceeded; may be repeated; default: all',
  },
} as const;
const oneWord = { min: 1, max: 1 } as const;

export const webhookCommands: readonly Command[] = [
  {
    name: 'webhooks ls',
    usage: '[--org ID]',
    summary: 'List the webhooks of an organization.',
    words: { min: 0, max: 0 },
    options: orgOption,
    run: list,
  },
  {
    name: 'webhooks create',
    usage: 'URL [--event KIND]… [--description TEXT] [--org ID]',
    summary: 'Create a webhook: it sends signed events to an address; its secret is shown only once.',
    words: oneWord,
    options: { ...eventOption, description: { type: 'string', about: 'purpose of the webhook' }, ...orgOption },
    run: create,
  },
  {
    name: 'webhooks edit',
    usage: 'ID|URL [--url URL] [--event KIND]… [--description TEXT] [--on|--off] [--org ID]',
    summary: 'Change a webhook, also to enable or disable it.',
    words: oneWord,
    options: {
      url: { type: 'string', about: 'new address' },
      event: { type: 'string', multiple: true, about: 'event type, or all; may be repeated' },
      description: { type: 'string', about: 'purpose of the webhook' },
      on: { type: 'boolean', about: 'enable the webhook' },
      off: { type: 'boolean', about: 'disable the webhook' },
      ...orgOption,
    },
    run: edit,
  },
  {
    name: 'webhooks rm',
    usage: 'ID|URL [--org ID] [--yes]',
    summary: 'Delete a webhook and its list of deliveries; asks first.',
    words: oneWord,
    options: { ...yesOption, ...orgOption },
    run: remove,
  },
  {
    name: 'webhooks rotate',
    usage: 'ID|URL [--grace-seconds N] [--org ID]',
    summary: 'Create a new secret for a webhook; it is shown only once.',
    words: oneWord,
    options: {
      'grace-seconds': { type: 'string', about: 'seconds for which the former secret also signs; default: 86400' },
      ...orgOption,
    },
    run: rotate,
  },
  {
    name: 'webhooks test',
    usage: 'ID|URL [--org ID]',
    summary: 'Send a test event to a webhook.',
    words: oneWord,
    options: orgOption,
    run: test,
  },
  {
    name: 'webhooks deliveries',
    usage: 'ID|URL [--limit N] [--org ID]',
    summary: 'List the deliveries of a webhook and their results.',
    words: oneWord,
    options: { limit: { type: 'string', about: 'number of deliveries; default: 50' }, ...orgOption },
    run: deliveries,
  },
  {
    name: 'webhooks replay',
    usage: 'ID|URL DELIVERY [--org ID]',
    summary: 'Send a delivery of a webhook again.',
    words: { min: 2, max: 2 },
    options: orgOption,
    run: replay,
  },
];
