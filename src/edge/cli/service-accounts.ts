import {
  cleanLine,
  type Command,
  type CommandContext,
  confirm,
  exitCodes,
  FailedError,
  jsonText,
  parseAnswer,
  printList,
  queryText,
  type Read,
  readAfterList,
  textFlag,
  timeText,
  yesOption,
} from '#edge/cli/shell/shell.ts';
import { firstProjectId, projectIdOf } from './projects.ts';

/** Commands over the service accounts of a project. Fields that a newer gateway adds to its answers are ignored. */

const account = async () => (await import('#edge/contract/service-accounts.ts')).serviceAccountSchema;
type Account = Read<typeof account>;

const createdAccount = async () => (await import('#edge/contract/service-accounts.ts')).createdServiceAccountSchema;

const org = (context: CommandContext) => ({ organization_id: textFlag(context, 'org') });

async function collectionOf(context: CommandContext): Promise<string> {
  const named = textFlag(context, 'project');
  const id = await (named === null ? firstProjectId(context) : projectIdOf(context, named));
  return `/v1/organization/projects/${encodeURIComponent(id)}/service_accounts`;
}

const headings = ['SERVICE ACCOUNT', 'NAME', 'CREATED (UTC)'];
const row = ({ id, name, created_at: since }: Account): string[] => [id, name, timeText(since)];
const none = 'no service accounts in this project; create one with "headgate service-accounts create NAME"';

async function list(context: CommandContext): Promise<number> {
  return printList(context, await readAfterList(context, { path: await collectionOf(context), item: account }), {
    headings,
    row,
    none,
  });
}

const daySeconds = 86_400;
const expirySeconds: Readonly<Record<string, number>> = {
  '7d': 7 * daySeconds,
  '30d': 30 * daySeconds,
  '90d': 90 * daySeconds,
  '1y': 365 * daySeconds,
};

async function create(context: CommandContext): Promise<number> {
  const collection = await collectionOf(context);
  const seconds = expirySeconds[textFlag(context, 'expiry') ?? 'never'];
  const body = {
    name: context.words[0],
    ...(seconds !== undefined && { expires_in_seconds: seconds }),
    ...(context.flags['no-key'] === true && { create_service_account_only: true }),
  };
  const answer = await context.api.call('POST', collection + queryText(org(context)), { body });
  context.out(context.json ? jsonText(answer) : createdText(await parseAnswer(createdAccount, answer)));
  return exitCodes.ok;
}

function createdText({ id, name, api_key: key }: Read<typeof createdAccount>): string {
  const made = `service account "${cleanLine(name)}" (${id})`;
  if (key === null)
    return `${made}, without a key; create one with "headgate keys create NAME --service-account ${id}"\n`;
  const { expires_at: end } = key;
  const until = end === null ? '' : `, valid until ${timeText(end)} UTC`;
  return `${made} with the key ${key.id}${until}; it is shown only once, so store it now:\n\n  ${key.value}\n\n`;
}

/** Finds a service account by its id, otherwise by its name, which is unique in a project. @throws FailedError */
function find(word: string, accounts: readonly Account[]): Account {
  const found = accounts.find(({ id }) => id === word) ?? accounts.find(({ name }) => name === word);
  if (found !== undefined) return found;
  throw new FailedError(
    `no service account of the project is named ${JSON.stringify(word)}; "headgate service-accounts ls" lists the service accounts`,
  );
}

async function remove(context: CommandContext): Promise<number> {
  const collection = await collectionOf(context);
  const { id, name } = find(context.words[0] ?? '', await readAfterList(context, { path: collection, item: account }));
  await confirm(context, {
    question: `Delete the service account "${name}" (${id})?`,
    consequence: 'Requests with its keys fail immediately and permanently. Usage, ledger and audit log stay.',
    done: 'deleted',
  });
  const answer = await context.api.call('DELETE', `${collection}/${id}${queryText(org(context))}`);
  context.out(context.json ? jsonText(answer) : `${id} "${cleanLine(name)}": deleted\n`);
  return exitCodes.ok;
}

const options = {
  project: { type: 'string', about: 'project of the account; default: the first project of the organization' },
  org: { type: 'string', about: 'another organization, for platform administrators' },
} as const;

export const serviceAccountCommands: readonly Command[] = [
  {
    name: 'service-accounts ls',
    usage: '[--project ID|NAME] [--org ID]',
    summary: 'List the service accounts of a project; programs use their keys.',
    words: { min: 0, max: 0 },
    options,
    run: list,
  },
  {
    name: 'service-accounts create',
    usage: 'NAME [--project ID|NAME] [--expiry never|7d|30d|90d|1y] [--no-key] [--org ID]',
    summary: 'Create a service account with a key; its secret is shown only once.',
    words: { min: 1, max: 1 },
    options: {
      expiry: { type: 'string', choices: ['never', ...Object.keys(expirySeconds)], about: 'default: never' },
      'no-key': { type: 'boolean', about: 'create no key' },
      ...options,
    },
    run: create,
  },
  {
    name: 'service-accounts rm',
    usage: 'ID|NAME [--project ID|NAME] [--org ID] [--yes]',
    summary: 'Delete a service account, whose keys end immediately; asks first.',
    words: { min: 1, max: 1 },
    options: { ...yesOption, ...options },
    run: remove,
  },
];
