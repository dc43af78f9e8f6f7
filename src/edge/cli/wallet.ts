import { z } from 'zod';
import { jsonText, parseAnswer, queryText } from './answers.ts';
import { type Command, type CommandContext, exitCodes, textFlag } from './command.ts';
import { UsageError } from './errors.ts';
import { renderTable } from './table.ts';

/** The commands over /v1/wallet. Fields that a newer gateway adds to its answers are ignored. */

const wallet = z.looseObject({ balance: z.string(), held: z.string(), available: z.string(), currency: z.string() });

const entry = z.looseObject({
  id: z.string(),
  type: z.string(),
  amount: z.string(),
  balance_after: z.string(),
  request_id: z.string().nullish(),
  requests: z.number().nullish(),
  reference: z.string().nullish(),
  note: z.string().nullish(),
  created_at: z.number(),
});
const ledgerPage = z.looseObject({ data: z.array(entry), next_cursor: z.string().nullable() });

const organizationOf = (context: CommandContext) => ({ organization_id: textFlag(context, 'org') });

async function show(context: CommandContext): Promise<number> {
  const answer = await context.api.call('GET', `/v1/wallet${queryText(organizationOf(context))}`);
  const { balance, held, available, currency } = parseAnswer(wallet, answer);
  const text = `balance    ${balance} ${currency}\nheld       ${held} ${currency}, for requests that run\navailable  ${available} ${currency}\n`;
  context.out(context.json ? jsonText(answer) : text);
  return exitCodes.ok;
}

/** The number of a flag. @throws UsageError */
export function countFlag(
  context: CommandContext,
  name: string,
  { usual, max }: { usual: number; max: number },
): number {
  const text = textFlag(context, name) ?? String(usual);
  if (/^\d{1,9}$/.test(text) && Number(text) >= 1 && Number(text) <= max) return Number(text);
  throw new UsageError(`--${name} must be a number from 1 to ${max}`);
}

/** A moment in seconds since the Unix epoch, as people read it. */
export const timeText = (seconds: number): string =>
  `${new Date(seconds * 1000).toISOString().slice(0, 19).replace('T', ' ')}`;

const pageMax = 500;

async function ledger(context: CommandContext): Promise<number> {
  const limit = countFlag(context, 'limit', { usual: 20, max: 100_000 });
  const found: z.output<typeof entry>[] = [];
  let cursor: string | null = null;
  do {
    const left = String(Math.min(pageMax, limit - found.length));
    const query = queryText({ limit: left, cursor, type: textFlag(context, 'type'), ...organizationOf(context) });
    const page: z.output<typeof ledgerPage> = parseAnswer(
      ledgerPage,
      await context.api.call('GET', `/v1/wallet/ledger${query}`),
    );
    found.push(...page.data);
    cursor = page.next_cursor;
  } while (cursor !== null && found.length < limit);
  const text = found.length === 0 ? 'nothing was booked\n' : renderTable(headings, found.map(row));
  context.out(context.json ? jsonText({ data: found }) : text);
  return exitCodes.ok;
}

const headings = ['TIME (UTC)', 'TYPE', 'USD', 'BALANCE', 'WHAT'];

function row(one: z.output<typeof entry>): string[] {
  const what = [one.request_id, one.reference, one.note].filter((word) => (word ?? '') !== '');
  const several = (one.requests ?? 1) > 1 ? [`${one.requests} requests`] : [];
  return [timeText(one.created_at), one.type, one.amount, one.balance_after, [...what, ...several].join(', ')];
}

async function credit(context: CommandContext): Promise<number> {
  const reference = textFlag(context, 'reference');
  if (reference === null) {
    const usage = 'headgate wallet credit USD --reference TEXT';
    throw new UsageError(
      `--reference names what it is for, such as an invoice; it is booked once, however often: ${usage}`,
    );
  }
  const note = textFlag(context, 'note');
  const organization = textFlag(context, 'org');
  const body = {
    amount: context.words[0],
    reference,
    ...(note !== null && { note }),
    ...(organization !== null && { organization_id: organization }),
  };
  const answer = await context.api.call('POST', '/v1/wallet/credits', { body });
  const { amount, balance_after: balance } = parseAnswer(entry, answer);
  context.out(context.json ? jsonText(answer) : `${amount} USD booked; the balance is ${balance} USD\n`);
  return exitCodes.ok;
}

const org = { type: 'string', about: 'another organization, for platform admins' } as const;

export const walletCommands: readonly Command[] = [
  {
    name: 'wallet',
    usage: '[--org ID]',
    summary: 'Show the balance of the organization, and what requests hold of it.',
    words: { min: 0, max: 0 },
    options: { org },
    run: show,
  },
  {
    name: 'wallet ledger',
    usage: '[--limit N] [--type usage|credit|adjustment] [--org ID]',
    summary: 'List what changed the balance, newest first.',
    words: { min: 0, max: 0 },
    options: {
      limit: { type: 'string', about: '20' },
      type: { type: 'string', choices: ['usage', 'credit', 'adjustment'] },
      org,
    },
    run: ledger,
  },
  {
    name: 'wallet credit',
    usage: 'USD --reference TEXT [--note TEXT] [--org ID]',
    summary: 'Add credit, as a platform admin; what has a reference is booked once, however often it is said.',
    words: { min: 1, max: 1 },
    options: { reference: { type: 'string' }, note: { type: 'string' }, org },
    run: credit,
  },
];
