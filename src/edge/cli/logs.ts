import { setTimeout as sleep } from 'node:timers/promises';
import {
  cleanLine,
  type Command,
  type CommandContext,
  exitCodes,
  type Read,
  readCursorList,
  textFlag,
  timeText,
} from '#edge/cli/shell/shell.ts';
import { findKeyId } from './keys.ts';
import { countFlag } from './wallet.ts';

/** `headgate logs`: requests as they end, recorded and rejected. */

const recorded = async () => (await import('#edge/contract/requests.ts')).usageRequestSchema;
const rejected = async () => (await import('#edge/contract/requests.ts')).rejectedRequestSchema;

type Entry = Read<typeof recorded> | Read<typeof rejected>;

const pauseMs = 2000;
/** Requests that one poll reads at most of each list: with more, the oldest of them are not printed. */
const polledMax = 500;
/** Seconds that a request may take to be printed. One that runs longer is listed by `usage requests` only. */
const lateSeconds = 600;

function lineOf(entry: Entry): string {
  const time = timeText(entry.created_at);
  const model = entry.model ?? '-';
  if (entry.object === 'usage.rejected_request')
    return `${time} ${entry.id} ${entry.status} ${model} ${entry.code}: ${entry.message}`;
  const end = entry.outcome === 'completed' ? '' : ` ${[entry.outcome, entry.reason].filter(Boolean).join(': ')}`;
  const tokens = `${entry.input_tokens}+${entry.output_tokens} tokens`;
  return `${time} ${entry.id} ${entry.status} ${model} ${tokens} $${entry.cost} ${entry.timings_ms.total} ms${end}`;
}

function print({ json, out }: CommandContext, entries: readonly Entry[]): void {
  for (const entry of entries) out(json ? `${JSON.stringify(entry)}\n` : `${cleanLine(lineOf(entry))}\n`);
}

type Query = Readonly<Record<string, string | null>>;

/** Reads the newest requests of both lists, oldest first. */
async function readNewest(context: CommandContext, query: Query, limit: number): Promise<readonly Entry[]> {
  const [ended, refused] = await Promise.all([
    readCursorList(context, { path: '/v1/usage/requests', item: recorded, query, limit, parameter: 'cursor' }),
    readCursorList(context, { path: '/v1/usage/rejected', item: rejected, query, limit, parameter: 'cursor' }),
  ]);
  const all: Entry[] = [...ended, ...refused];
  return all.toSorted((a, b) => (a.id < b.id ? -1 : 1)).slice(-limit);
}

async function logs(context: CommandContext): Promise<number> {
  const limit = countFlag(context, 'tail', { usual: 20, max: polledMax });
  const key = textFlag(context, 'key');
  const query = {
    model: textFlag(context, 'model'),
    key_id: key === null ? null : await findKeyId(context, key),
    status: textFlag(context, 'status'),
    end_user: textFlag(context, 'user'),
    error: textFlag(context, 'error'),
    organization_id: textFlag(context, 'org'),
  };
  const first = await readNewest(context, query, limit);
  print(context, first);
  const isEmpty = first.length === 0 && context.flags['follow'] !== true && !context.json;
  if (isEmpty) context.out('no requests\n');
  if (context.flags['follow'] !== true) return exitCodes.ok;
  return follow(context, query, first);
}

/** Prints requests that the last polls have not returned, until Ctrl-C. */
async function follow(context: CommandContext, query: Query, first: readonly Entry[]): Promise<number> {
  // Older requests than the first list are not news, also if the list was shorter than what there was.
  const [oldest] = first;
  const floor = oldest?.created_at ?? Math.floor(Date.now() / 1000);
  let printed = new Map(first.map(({ id, created_at: at }) => [id, at]));
  for (;;) {
    await sleep(pauseMs);
    const since = Math.max(floor, Math.floor(Date.now() / 1000) - lateSeconds);
    const from = new Date(since * 1000).toISOString();
    const entries = await readNewest(context, { ...query, from }, polledMax);
    print(
      context,
      // Times have seconds only; ids are in the order of the requests.
      entries.filter(({ id }) => id > (oldest?.id ?? '') && !printed.has(id)),
    );
    for (const { id, created_at: at } of entries) printed.set(id, at);
    printed = new Map([...printed].filter(([, at]) => at >= since));
  }
}

export const logsCommand: Command = {
  name: 'logs',
  usage: '[-f] [--tail N] [--model ID] [--key KEY] [--status STATUS] [--user USER] [--error TEXT] [--org ID]',
  summary: 'Print the newest requests, recorded and rejected; with -f, new ones as they end.',
  words: { min: 0, max: 0 },
  options: {
    follow: { type: 'boolean', short: 'f', about: 'print new requests as they end, until Ctrl-C' },
    tail: { type: 'string', about: 'number of requests to begin with; default: 20' },
    model: { type: 'string', names: 'models', about: 'only this model' },
    key: { type: 'string', names: 'keys', about: 'only this key, by name or id' },
    status: { type: 'string', about: 'only this HTTP status' },
    user: { type: 'string', about: 'only this end user' },
    error: { type: 'string', about: 'only errors that contain this text' },
    org: { type: 'string', about: 'another organization, for platform administrators' },
  },
  run: logs,
};
