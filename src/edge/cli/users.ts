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
  printOne,
  queryText,
  type Read,
  readList,
  textFlag,
  UsageError,
  yesOption,
} from '#edge/cli/shell/shell.ts';

/** Commands over /v1/users. Fields that a newer gateway adds to its answers are ignored. */

const user = async () => (await import('#edge/contract/users.ts')).userSchema;
type User = Read<typeof user>;

const collection = '/v1/users';
export const org = (context: CommandContext) => ({ organization_id: textFlag(context, 'org') });

const leaveOut = ['ROLES', 'PLATFORM'];
const headings = ['USER', 'EMAIL', 'PLATFORM', 'ROLES', 'NAME'];

const rolesText = ({ memberships }: User): string =>
  memberships.map(({ organization_id: id, role }) => `${role} of ${id}`).join(', ') || 'none';

const row = (one: User): string[] => [one.id, one.email, one.platform_role, rolesText(one), one.name];

function readAll(context: CommandContext): Promise<readonly User[]> {
  const named = textFlag(context, 'org');
  const query = new URLSearchParams(named === null ? {} : { organization_id: named });
  return readList(context, { path: collection, item: user, query });
}

async function list(context: CommandContext): Promise<number> {
  return printList(context, await readAll(context), {
    headings,
    row,
    none: 'no users; create one with "headgate users create EMAIL --name NAME"',
    leaveOut,
  });
}

/** Returns the path of the user with this id or address, with the organization that was named. @throws FailedError */
export async function pathOfNamed(context: CommandContext): Promise<string> {
  const [word = ''] = context.words;
  const query = queryText(org(context));
  if (word.startsWith('user_')) return pathOf(collection, word) + query;
  const found = (await readAll(context)).find(({ email }) => email.toLowerCase() === word.toLowerCase());
  if (found !== undefined) return pathOf(collection, found.id) + query;
  throw new FailedError(`no user has the email address ${JSON.stringify(word)}; "headgate users ls" lists the users`);
}

async function show(context: CommandContext): Promise<number> {
  return printOne(context, await pathOfNamed(context), user);
}

/**
 * Reads passwords from the terminal or standard input, never from the command line, which other users of the machine
 * can see. @throws UsageError
 */
async function readPasswords(context: CommandContext, names: readonly string[]): Promise<readonly string[]> {
  const { terminal } = context;
  if (terminal.isInteractive) {
    const answers: string[] = [];
    for (const name of names) answers.push(await terminal.askSecret(`${name} (not shown): `));
    return answers;
  }
  const lines = (await terminal.readInput()).replace(/\r?\n$/, '').split(/\r?\n/);
  if (lines.length === names.length && lines.every((line) => line !== '')) return lines;
  throw new UsageError(`standard input must have one line for each of: ${names.join(', ')}`);
}

async function create(context: CommandContext): Promise<number> {
  const name = textFlag(context, 'name');
  if (name === null) throw new UsageError('--name is missing: give the name of the user');
  const role = textFlag(context, 'role');
  const [password] = await readPasswords(context, ['Password']);
  const body = { email: context.words[0], name, password, ...(role !== null && { role }) };
  return tell(context, await context.api.call('POST', collection + queryText(org(context)), { body }));
}

async function tell({ json, out }: CommandContext, answer: unknown): Promise<number> {
  const told = await parseAnswer(user, answer);
  out(json ? jsonText(answer) : `${told.id} ${cleanLine(told.email)}: ${rolesText(told)}\n`);
  return exitCodes.ok;
}

const passwordFlags = { password: 'New password', 'current-password': 'Current password' } as const;

async function edit(context: CommandContext): Promise<number> {
  const said = ['name', 'email', 'role'].flatMap((flag) => {
    const value = textFlag(context, flag);
    return value === null ? [] : [[flag, value] as const];
  });
  const secret = Object.entries(passwordFlags).filter(([flag]) => context.flags[flag] === true);
  if (said.length + secret.length === 0)
    throw new UsageError('nothing to change; "headgate users edit --help" lists the options');
  const path = await pathOfNamed(context);
  const names = secret.map(([, name]) => name);
  const passwords = secret.length === 0 ? [] : await readPasswords(context, names);
  const given = secret.map(([flag], index) => [flag.replace('-', '_'), passwords[index]] as const);
  return tell(context, await context.api.call('PUT', path, { body: Object.fromEntries([...said, ...given]) }));
}

async function remove(context: CommandContext): Promise<number> {
  const path = await pathOfNamed(context);
  const { id, email } = await parseAnswer(user, await context.api.call('GET', path));
  const named = textFlag(context, 'org');
  const all =
    named === null ? "A platform administrator's key without --org removes the user from all organizations. " : '';
  await confirm(context, {
    question: `Remove the user ${email} (${id}) from the organization${named === null ? '' : ` ${named}`}?`,
    consequence:
      `${all}The user's keys there end immediately, and an account that belongs to no other organization is deleted. ` +
      'Usage, ledger and audit log stay.',
    done: 'removed',
  });
  await context.api.call('DELETE', path);
  context.out(context.json ? jsonText({ id, deleted: true }) : `${id} ${cleanLine(email)}: removed\n`);
  return exitCodes.ok;
}

export const orgOption = {
  org: { type: 'string', about: 'another organization, for platform administrators' },
} as const;
export const roleOption = { type: 'string', choices: ['member', 'admin', 'owner'] } as const;
export const one = { min: 1, max: 1 } as const;

export const userCommands: readonly Command[] = [
  {
    name: 'users ls',
    usage: '[--org ID]',
    summary: 'List the users of the organization; platform administrators see all users.',
    words: { min: 0, max: 0 },
    options: orgOption,
    run: list,
  },
  {
    name: 'users show',
    usage: 'ID|EMAIL [--org ID]',
    summary: 'Show a user.',
    words: one,
    options: orgOption,
    run: show,
  },
  {
    name: 'users create',
    usage: 'EMAIL --name NAME [--role member|admin|owner] [--org ID]',
    summary:
      'Create a user who can sign in to the portal; the password is typed without echo, or read from standard input.',
    words: one,
    options: {
      name: { type: 'string', about: 'name of the user' },
      role: { ...roleOption, about: 'role in the organization; default: member' },
      ...orgOption,
    },
    run: create,
  },
  {
    name: 'users edit',
    usage:
      'ID|EMAIL [--name NAME] [--email EMAIL] [--role member|admin|owner] [--password] [--current-password] [--org ID]',
    summary:
      'Change a user. Passwords are typed without echo, or read from standard input, one per line: with --password the ' +
      'new password first, then with --current-password the current one.',
    words: one,
    options: {
      name: { type: 'string', about: 'name of the user' },
      email: { type: 'string', about: 'address with which the user signs in' },
      role: { ...roleOption, about: 'role in the organization' },
      password: { type: 'boolean', about: 'ask for a new password' },
      'current-password': {
        type: 'boolean',
        about: 'ask for your current password, to change your own address or password',
      },
      ...orgOption,
    },
    run: edit,
  },
  {
    name: 'users rm',
    usage: 'ID|EMAIL [--org ID] [--yes]',
    summary: "Remove a user from the organization, which ends the user's keys there; asks first.",
    words: one,
    options: { ...yesOption, ...orgOption },
    run: remove,
  },
];
