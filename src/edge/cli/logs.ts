import { setTimeout as sleep } from 'node:timers/promises';
import {
  cleanLine,
  type Command,
  type CommandContext,
  createPatience,
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
/** Requests that one poll reads at most of each list. */
const polledMax = 500;
/** Seconds by which a request may be older than the newest one. One that runs longer is in `usage requests` only. */
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
  const isFollowed = context.flags['follow'] === true;
  const read = await readNewest(context, query, isFollowed ? polledMax : limit);
  print(context, read.slice(-limit));
  if (isFollowed) return follow(context, query, read);
  if (read.length === 0 && !context.json) context.out('no requests\n');
  return exitCodes.ok;
}

/**
 * Prints requests that end after the ones that have been read, until Ctrl-C. Uses the times of the gateway only: the
 * clock here may be another.
 */
async function follow(context: CommandContext, query: Query, read: readonly Entry[]): Promise<never> {
  const patience = createPatience(context);
  for (let before = read; ;) {
    await sleep(pauseMs);
    try {
      const newest = before.at(-1);
      const from = newest === undefined ? null : new Date((newest.created_at - lateSeconds) * 1000).toISOString();
      const entries = await readNewest(context, { ...query, from }, polledMax);
      patience.arrived();
      const known = new Set(before.map(({ id }) => id));
      const news = entries.filter(({ id }) => !known.has(id));
      if (news.length >= polledMax) context.err('headgate: too many requests at once; some are not printed\n');
      print(context, news);
      before = entries;
    } catch (error) {
      patience.lost(error);
    }
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
