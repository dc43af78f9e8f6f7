import {
  type Command,
  type CommandContext,
  FailedError,
  parseAnswer,
  pathOf,
  printList,
  queryText,
  type Read,
  readCursorList,
  textFlag,
  timeText,
} from '#edge/cli/shell/shell.ts';
import { countFlag } from './wallet.ts';

/** The command over /v1/audit. Fields that a newer gateway adds to its answers are ignored. */

const entry = async () => (await import('#edge/contract/audit.ts')).auditEntrySchema;
type Entry = Read<typeof entry>;

const headings = ['TIME (UTC)', 'ACTION', 'TARGET', 'ACTOR', 'CHANGES'];

type Names = ReadonlyMap<string, string>;

const row = ({ created_at: at, action, target_id: target, actor, before, after }: Entry, names: Names): string[] => [
  timeText(at),
  action,
  target,
  byText(actor, names),
  changesText(before, after),
];

/** Returns the name of an actor. A key is marked, since a key and a user may have the same name. */
function byText({ type, id }: Entry['actor'], names: Names): string {
  if (id === null) return 'the gateway';
  const name = names.get(id) ?? id;
  return type === 'key' && name !== id ? `key ${name}` : name;
}

const key = async () => (await import('#edge/contract/keys.ts')).keySchema;
const user = async () => (await import('#edge/contract/users.ts')).userSchema;

/** Returns the email address or name of a key or user; the id if that cannot be read, as in another organization. */
async function readName({ api }: CommandContext, id: string, organizations: readonly (string | null)[]) {
  const isKey = id.startsWith('key_');
  for (const organization of organizations) {
    try {
      const path = pathOf(isKey ? '/v1/keys' : '/v1/users', id) + queryText({ organization_id: organization });
      const answer = await api.call('GET', path);
      return isKey ? (await parseAnswer(key, answer)).name : (await parseAnswer(user, answer)).email;
    } catch (error) {
      if (!(error instanceof FailedError)) throw error;
    }
  }
  return id;
}

const isOfAll = (context: CommandContext): boolean => textFlag(context, 'org') === 'all';

/** Returns the names of the actors, by id. */
async function readNames(context: CommandContext, entries: readonly Entry[]): Promise<Names> {
  const ids = new Set(entries.flatMap(({ actor: { id } }) => (id === null ? [] : [id])));
  const organization = isOfAll(context) ? null : textFlag(context, 'org');
  // An operator acts in another organization with a key of his own organization.
  const organizations = organization === null ? [null] : [organization, null];
  const names = new Map<string, string>();
  for (const id of ids) names.set(id, await readName(context, id, organizations));
  return names;
}

/** Formats the changed fields, each as `name: a → b`. */
function changesText(before: Entry['before'], after: Entry['after']): string {
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  return names
    .flatMap((name) => {
      const [was, is] = [before?.[name], after?.[name]].map(valueText);
      if (was === is) return [];
      if (isEmpty(was)) return isEmpty(is) ? [] : [`${name}: ${is}`];
      return [`${name}: ${was} → ${is ?? 'nothing'}`];
    })
    .join(', ');
}

const isEmpty = (text: string | undefined): text is '' | 'null' | undefined =>
  text === undefined || text === 'null' || text === '';

const valueText = (value: unknown): string | undefined => (typeof value === 'string' ? value : JSON.stringify(value));

async function list(context: CommandContext): Promise<number> {
  const limit = countFlag(context, 'limit', { usual: 20, max: 100_000 });
  const query = {
    action: textFlag(context, 'action'),
    target_id: textFlag(context, 'target'),
    from: textFlag(context, 'from'),
    to: textFlag(context, 'to'),
    ...(isOfAll(context) ? { all_organizations: 'true' } : { organization_id: textFlag(context, 'org') }),
  };
  const found = await readCursorList(context, {
    path: '/v1/audit',
    item: entry,
    query,
    limit,
    parameter: 'after',
  });
  const names = context.json ? new Map<string, string>() : await readNames(context, found);
  const none = 'no matching changes';
  const leaveOut = ['TARGET', 'ACTOR'];
  if (!isOfAll(context)) return printList(context, found, { headings, row: (one) => row(one, names), none, leaveOut });
  const ofAll = (one: Entry): string[] => [one.organization_id, ...row(one, names)];
  return printList(context, found, { headings: ['ORGANIZATION', ...headings], row: ofAll, none, leaveOut });
}

export const auditCommand: Command = {
  name: 'audit',
  usage: '[--action ACTION] [--target ID] [--from TIME] [--to TIME] [--limit N] [--org ID|all]',
  summary: 'List changes and who made them, newest first.',
  words: { min: 0, max: 0 },
  options: {
    action: { type: 'string', about: 'only this action, such as api_key.revoked' },
    target: { type: 'string', about: 'only this target, by its id' },
    from: { type: 'string', about: 'date or RFC 3339 time' },
    to: { type: 'string', about: 'end, exclusive' },
    limit: { type: 'string', about: 'number of entries; default: 20' },
    org: { type: 'string', about: 'another organization, or all, for platform administrators' },
  },
  run: list,
};
