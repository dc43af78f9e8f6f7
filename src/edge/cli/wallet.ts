import {
  cleanLine,
  type Command,
  type CommandContext,
  exitCodes,
  jsonText,
  parseAnswer,
  queryText,
  type Read,
  readCursorList,
  renderTable,
  textFlag,
  timeText,
  UsageError,
} from '#edge/cli/shell/shell.ts';

/** The commands over /v1/wallet. Fields that a newer gateway adds to its answers are ignored. */

const wallet = async () => (await import('#edge/contract/wallet.ts')).walletSchema;

const entry = async () => (await import('#edge/contract/wallet.ts')).ledgerEntrySchema;

const organizationOf = (context: CommandContext) => ({ organization_id: textFlag(context, 'org') });

async function show(context: CommandContext): Promise<number> {
  const answer = await context.api.call('GET', `/v1/wallet${queryText(organizationOf(context))}`);
  const { balance, held, available, currency } = await parseAnswer(wallet, answer);
  const text = `balance    ${balance} ${currency}\nheld       ${held} ${currency}, for running requests\navailable  ${available} ${currency}\n`;
  context.out(context.json ? jsonText(answer) : text);
  return exitCodes.ok;
}

/** Returns the number in a flag. @throws UsageError */
export function countFlag(
  context: CommandContext,
  name: string,
  { usual, max }: { usual: number; max: number },
): number {
  const text = textFlag(context, name) ?? String(usual);
  if (/^\d{1,9}$/.test(text) && Number(text) >= 1 && Number(text) <= max) return Number(text);
  throw new UsageError(`--${name} must be a number from 1 to ${max}`);
}

/** Prints the entries of the ledger. */
async function ledger(context: CommandContext): Promise<number> {
  const limit = countFlag(context, 'limit', { usual: 20, max: 100_000 });
  const query = { type: textFlag(context, 'type'), ...organizationOf(context) };
  const path = '/v1/wallet/ledger';
  const found = await readCursorList(context, { path, item: entry, query, limit, parameter: 'cursor' });
  const text = found.length === 0 ? 'no entries\n' : renderTable(headings, found.map(row), context.terminal.columns);
  context.out(context.json ? jsonText({ data: found }) : text);
  return exitCodes.ok;
}

const headings = ['TIME (UTC)', 'TYPE', 'USD', 'BALANCE', 'DETAILS'];

function row(one: Read<typeof entry>): string[] {
  const what = [one.request_id, one.reference, one.note].filter((word) => (word ?? '') !== '');
  const several = (one.requests ?? 1) > 1 ? [`${one.requests} requests`] : [];
  return [timeText(one.created_at), one.type, one.amount, one.balance_after, [...what, ...several].join(', ')];
}

async function credit(context: CommandContext): Promise<number> {
  const note = textFlag(context, 'note');
  const body = {
    amount: context.words[0],
    reference: referenceOf(context, 'headgate wallet credit USD --reference TEXT'),
    ...(note !== null && { note }),
  };
  return book(context, '/v1/wallet/credits', body);
}

async function adjust(context: CommandContext): Promise<number> {
  const usage = 'headgate wallet adjust USD --reason TEXT --reference TEXT';
  const reason = textFlag(context, 'reason');
  if (reason === null) throw new UsageError(`--reason is missing, the reason for the ledger: ${usage}`);
  const body = { amount: context.words[0], reason, reference: referenceOf(context, usage) };
  return book(context, '/v1/wallet/adjustments', body);
}

/** @throws UsageError */
function referenceOf(context: CommandContext, usage: string): string {
  const reference = textFlag(context, 'reference');
  if (reference !== null) return reference;
  throw new UsageError(
    `--reference is missing, such as an invoice number; each reference is applied only once: ${usage}`,
  );
}

/** Status of the answer for a reference that was applied before. */
const repeatedStatus = 200;

/**
 * Applies a credit or an adjustment, and prints the current balance. The entry has only the balance right after it,
 * which may be old.
 */
async function book(context: CommandContext, path: string, body: object): Promise<number> {
  const organization = textFlag(context, 'org');
  const { status, answer } = await context.api.ask('POST', path, {
    body: { ...body, ...(organization !== null && { organization_id: organization }) },
  });
  const booked = await parseAnswer(entry, answer);
  const walletPath = `/v1/wallet${queryText(organizationOf(context))}`;
  const { balance } = await parseAnswer(wallet, await context.api.call('GET', walletPath));
  const isRepeated = status === repeatedStatus;
  const { amount, reference, created_at: at } = booked;
  const text = isRepeated
    ? `already applied: ${amount} USD under the reference ${JSON.stringify(reference ?? '')}, at ${timeText(at)} UTC; nothing was applied now`
    : `${amount} USD applied`;
  context.out(
    context.json
      ? jsonText({ ...booked, already_booked: isRepeated, balance })
      : `${cleanLine(text)}; the balance is ${balance} USD\n`,
  );
  return exitCodes.ok;
}

const org = { type: 'string', about: 'another organization, for platform administrators' } as const;
const reference = { type: 'string', about: 'such as an invoice number; each reference is applied only once' } as const;

export const walletCommands: readonly Command[] = [
  {
    name: 'wallet',
    usage: '[--org ID]',
    summary: 'Show the balance of the organization, and the amount held for running requests.',
    words: { min: 0, max: 0 },
    options: { org },
    run: show,
  },
  {
    name: 'wallet ledger',
    usage: '[--limit N] [--type usage|credit|adjustment] [--org ID]',
    summary: 'List the changes of the balance, newest first.',
    words: { min: 0, max: 0 },
    options: {
      limit: { type: 'string', about: 'number of entries; default: 20' },
      type: { type: 'string', choices: ['usage', 'credit', 'adjustment'], about: 'default: all' },
      org,
    },
    run: ledger,
  },
  {
    name: 'wallet credit',
    usage: 'USD --reference TEXT [--note TEXT] [--org ID]',
    summary: 'Add credit; for platform administrators; each reference is applied only once.',
    words: { min: 1, max: 1 },
    options: { reference, note: { type: 'string', about: 'note for the ledger' }, org },
    run: credit,
  },
  {
    name: 'wallet adjust',
    usage: 'USD --reason TEXT --reference TEXT [--org ID]',
    summary:
      'Correct a balance up, or down as with -2.50; for platform administrators; each reference is applied only once.',
    words: { min: 1, max: 1 },
    options: { reason: { type: 'string', about: 'reason, for the ledger' }, reference, org },
    run: adjust,
  },
];
