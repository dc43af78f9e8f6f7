import { z } from 'zod';
import {
  type Command,
  type CommandContext,
  exitCodes,
  jsonText,
  type NamedThing,
  namedThings,
  parseAnswer,
} from '#edge/cli/shell/shell.ts';
import { wholeListOf } from '#edge/contract/lists.ts';

/** `headgate names`: prints the names that a shell offers as completions. */

const thing = z.looseObject({ id: z.string().optional(), name: z.string().nullish() });
/** Every form of list has `data`. */
const things = () => Promise.resolve(wholeListOf(thing).pick({ data: true }));

/** Path of each list, and the field with the name that people use. */
const places: Readonly<Record<NamedThing, readonly [path: string, field: 'id' | 'name']>> = {
  models: ['/v1/models', 'id'],
  engines: ['/v1/admin/engines', 'id'],
  clusters: ['/v1/clusters?limit=100', 'name'],
  stacks: ['/v1/stacks?limit=100', 'name'],
  runs: ['/v1/runs?limit=20', 'id'],
  keys: ['/v1/keys?limit=100&status=active', 'name'],
};

/** Milliseconds after which completion gives up: longer than that nobody waits after pressing Tab. */
const answerTimeoutMs = 2000;

/** Matches names that a shell passes unchanged. A name with other characters must be typed. */
const plain = /^[\w.@/][\w.@/:+-]*$/;

async function list({ api, words, json, out }: CommandContext): Promise<number> {
  const [path, field] = places[namedThings.find((one) => one === words[0]) ?? 'models'];
  const { data } = await parseAnswer(things, await api.call('GET', path, { answerTimeoutMs }));
  const names = [...new Set(data.map((one) => one[field] ?? ''))].filter((name) => plain.test(name));
  out(json ? jsonText({ data: names }) : names.map((name) => `${name}\n`).join(''));
  return exitCodes.ok;
}

export const namesCommand: Command = {
  name: 'names',
  usage: namedThings.join('|'),
  summary: 'Print names for shell completion, one per line.',
  words: { min: 1, max: 1 },
  choices: namedThings,
  options: {},
  run: list,
};
