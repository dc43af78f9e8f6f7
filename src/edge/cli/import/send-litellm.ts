import {
  cleanLine,
  type CommandContext,
  exitCodes,
  FailedError,
  jsonText,
  parseAnswer,
  type Read,
  textFlag,
  UsageError,
} from '#edge/cli/shell/shell.ts';
import { createNotes, type ImportNote, type Notes } from './draft.ts';
import { readLitellmDatabase } from '#core/litellm/litellm.ts';
import { convertLitellm, type GroupBody } from './litellm-virtual-keys.ts';

/** Sends LiteLLM's teams and virtual keys to the gateway. */

const answer = async () => (await import('#edge/contract/keys.ts')).importSchema;
type Answer = Read<typeof answer>;

/** Keys per request, as the API accepts. */
const keysMax = 50;
/** Characters of keys per request: UTF-8 has at most three bytes for each, and a body at most a mebibyte. */
const lengthMax = 300_000;

/** A line of the result. */
interface Outcome {
  readonly kind: 'project' | 'key';
  readonly name: string;
  readonly status: Answer['project']['status'];
  readonly id: string | null;
  readonly message: string | null;
}

/** @throws ConfigError, FailedError, UsageError */
export async function sendLitellm(context: CommandContext, url: string): Promise<number> {
  const { json, out, words, flags } = context;
  if (words.length > 0) throw new UsageError('give a file or --database, not both');
  for (const name of ['out', 'force']) {
    if (flags[name] !== undefined) throw new UsageError(`--${name} is for files, not for --database`);
  }
  const notes = createNotes();
  const groups = convertLitellm(await readLitellmDatabase(url), Date.now(), notes);
  const dryRun = flags['dry-run'] === true;
  const outcomes: Outcome[] = [];
  for (const group of groups) outcomes.push(...(await sendGroup(context, group, dryRun, notes)));
  const noted = notes.list.map(({ model: about, text }) => ({ about, text }));
  if (json) out(jsonText({ object: 'import', dry_run: dryRun, data: outcomes, notes: noted }));
  else printResult(context, { outcomes, dryRun, notes: notes.list });
  return outcomes.some(({ status }) => status === 'conflict') ? exitCodes.failed : exitCodes.ok;
}

async function sendGroup(
  context: CommandContext,
  { project, keys }: GroupBody,
  dryRun: boolean,
  notes: Notes,
): Promise<Outcome[]> {
  const organization = textFlag(context, 'org');
  const shared = { ...(organization !== null && { organization_id: organization }), dry_run: dryRun, project };
  const outcomes: Outcome[] = [];
  for (const [number, part] of partsOf(keys).entries()) {
    const body = { ...shared, keys: part };
    const read = await parseAnswer(answer, await context.api.call('POST', '/v1/imports', { body }));
    if (read.keys.length !== part.length) throw new FailedError('the answer of the gateway has another number of keys');
    if (number === 0) outcomes.push({ kind: 'project', name: project.name, ...read.project });
    for (const [index, { status, id, message, unknown_models: unknown }] of read.keys.entries()) {
      const name = part[index]?.name ?? '';
      outcomes.push({ kind: 'key', name, status, id, message });
      if (unknown.length > 0)
        notes.add(`key ${name}`, `models that do not exist here: not imported: ${unknown.join(', ')}`);
    }
  }
  return outcomes;
}

/** Divides keys into parts that fit into a request; at least one, which creates the project. */
function partsOf(keys: GroupBody['keys']): GroupBody['keys'][] {
  const parts: GroupBody['keys'][number][][] = [[]];
  let length = 0;
  for (const key of keys) {
    const added = JSON.stringify(key).length;
    const last = parts.at(-1);
    if (last !== undefined && (last.length === 0 || (last.length < keysMax && length + added <= lengthMax))) {
      last.push(key);
      length += added;
    } else {
      parts.push([key]);
      length = added;
    }
  }
  return parts;
}

function printResult(
  { out }: CommandContext,
  result: { readonly outcomes: readonly Outcome[]; readonly dryRun: boolean; readonly notes: readonly ImportNote[] },
): void {
  const { outcomes, dryRun, notes } = result;
  const created = dryRun ? 'would be created' : 'created';
  for (const { kind, name, status, id, message } of outcomes) {
    // The ids of a dry run exist nowhere.
    const shown = id === null || (dryRun && status === 'created') ? '' : ` (${id})`;
    const what = { created, exists: 'exists, not changed', conflict: `not imported: ${message ?? ''}` }[status];
    out(cleanLine(`${kind} ${name}${shown}: ${what}`) + '\n');
  }
  for (const { model, text } of notes) out(cleanLine(`${model ?? 'LiteLLM'}: ${text}`) + '\n');
  const count = (kind: Outcome['kind'], status: Outcome['status']): number =>
    outcomes.filter((one) => one.kind === kind && one.status === status).length;
  const total = (['created', 'exists', 'conflict'] as const).map(
    (status) => `${count('project', status)} projects and ${count('key', status)} keys`,
  );
  out(`${total[0]} ${created}, ${total[1]} exist, ${total[2]} in conflict\n`);
}
