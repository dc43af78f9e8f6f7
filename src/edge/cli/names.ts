import { z } from 'zod';
import { jsonText, parseAnswer } from './answers.ts';
import { type Command, type CommandContext, exitCodes, type NamedThing, namedThings } from './command.ts';

/** `headgate names`: what a shell offers while somebody types. */

const things = z.looseObject({
  data: z.array(z.looseObject({ id: z.string().optional(), name: z.string().nullish() })),
});

/** Where they are, and by what people call them. */
const places: Readonly<Record<NamedThing, readonly [path: string, field: 'id' | 'name']>> = {
  models: ['/v1/models', 'id'],
  engines: ['/v1/admin/engines', 'id'],
  clusters: ['/v1/clusters?limit=100', 'name'],
  stacks: ['/v1/stacks?limit=100', 'name'],
  runs: ['/v1/runs?limit=20', 'id'],
  keys: ['/v1/keys?limit=100&status=active', 'name'],
};

/** Who presses Tab does not wait for longer. */
const answerTimeoutMs = 2000;

/** A shell would take other characters for its own: such a name is typed. */
const plain = /^[\w.@/][\w.@/:+-]*$/;

async function list({ api, words, json, out }: CommandContext): Promise<number> {
  const [path, field] = places[namedThings.find((one) => one === words[0]) ?? 'models'];
  const { data } = parseAnswer(things, await api.call('GET', path, { answerTimeoutMs }));
  const names = [...new Set(data.map((one) => one[field] ?? ''))].filter((name) => plain.test(name));
  out(json ? jsonText({ data: names }) : names.map((name) => `${name}\n`).join(''));
  return exitCodes.ok;
}

export const namesCommand: Command = {
  name: 'names',
  usage: namedThings.join('|'),
  summary: 'Print the names that completion offers, a line each.',
  words: { min: 1, max: 1 },
  choices: namedThings,
  options: {},
  run: list,
};
