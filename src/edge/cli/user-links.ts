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
  queryText,
  type Read,
  readCursorList,
  textFlag,
  yesOption,
} from '#edge/cli/shell/shell.ts';
import { one, org, orgOption, pathOfNamed, roleOption } from './users.ts';

/** Links for people: invitations, and links to set a new password. */

const invitation = async () => (await import('#edge/contract/users.ts')).invitationSchema;
type Invitation = Read<typeof invitation>;

const invited = async () => (await import('#edge/contract/users.ts')).createdInvitationSchema;
const resetLink = async () => (await import('#edge/contract/users.ts')).resetLinkSchema;

const collection = '/v1/invitations';

/** @param at in seconds since 1970, or as ISO text */
const minuteOf = (at: number | string): string =>
  new Date(typeof at === 'number' ? at * 1000 : at).toISOString().slice(0, 'YYYY-MM-DDTHH:mm'.length).replace('T', ' ');

interface MadeLink {
  readonly email: string;
  /** A path if the gateway does not know its own address; null if the link was sent by email. */
  readonly link: string | null;
  readonly expiresAt: number | string;
}

function linkText({ config }: CommandContext, { email, link, expiresAt }: MadeLink): string {
  const until = `${minuteOf(expiresAt)} UTC`;
  const to = cleanLine(email);
  if (link === null) return `link sent to ${to} by email; it works once, until ${until}\n`;
  const address = new URL(link, config.url).href;
  return `send this link to ${to}; it works once, until ${until}, for anybody who has it, and is shown only once:\n\n  ${address}\n\n`;
}

async function invite(context: CommandContext): Promise<number> {
  const role = textFlag(context, 'role');
  const body = { email: context.words[0], ...(role !== null && { role }) };
  const answer = await context.api.call('POST', collection + queryText(org(context)), { body });
  const { id, email, role: given, link, expires_at: expiresAt } = await parseAnswer(invited, answer);
  const text = `${id} ${cleanLine(email)}: invited as ${given}\n${linkText(context, { email, link, expiresAt })}`;
  context.out(context.json ? jsonText(answer) : text);
  return exitCodes.ok;
}

const readAll = (context: CommandContext): Promise<readonly Invitation[]> =>
  readCursorList(context, {
    path: collection,
    item: invitation,
    query: org(context),
    limit: Infinity,
    parameter: 'cursor',
  });

const headings = ['INVITATION', 'EMAIL', 'ROLE', 'CREATED (UTC)', 'EXPIRES (UTC)'];

async function listInvitations(context: CommandContext): Promise<number> {
  return printList(context, await readAll(context), {
    leaveOut: ['CREATED (UTC)', 'ROLE', 'EXPIRES (UTC)'],
    headings,
    row: ({ id, email, role, created_at: since, expires_at: until }) => [
      id,
      email,
      role,
      minuteOf(since),
      minuteOf(until),
    ],
    none: 'no open invitations; invite somebody with "headgate users invite EMAIL"',
  });
}

async function uninvite(context: CommandContext): Promise<number> {
  const [word = ''] = context.words;
  const open = await readAll(context);
  const found = open.find(({ id, email }) => id === word || email.toLowerCase() === word.toLowerCase());
  if (found === undefined) {
    throw new FailedError(
      `there is no open invitation for ${JSON.stringify(word)}; "headgate users invitations" lists them`,
    );
  }
  await confirm(context, {
    question: `Revoke the invitation for ${found.email} (${found.id})?`,
    consequence: 'Its link stops working.',
    done: 'revoked',
  });
  const answer = await context.api.call('DELETE', pathOf(collection, found.id) + queryText(org(context)));
  context.out(context.json ? jsonText(answer) : `${found.id} ${cleanLine(found.email)}: revoked\n`);
  return exitCodes.ok;
}

async function makeResetLink(context: CommandContext): Promise<number> {
  const [path = '', query] = (await pathOfNamed(context)).split('?');
  const asked = `${path}/reset-link${query === undefined ? '' : `?${query}`}`;
  const answer = await context.api.call('POST', asked);
  const { email, link, expires_at: expiresAt } = await parseAnswer(resetLink, answer);
  const text = `a new password for ${cleanLine(email)}: ${linkText(context, { email, link, expiresAt })}`;
  context.out(context.json ? jsonText(answer) : text);
  return exitCodes.ok;
}

export const userLinkCommands: readonly Command[] = [
  {
    name: 'users invite',
    usage: 'EMAIL [--role member|admin|owner] [--org ID]',
    summary:
      'Invite somebody to the organization; the link works for a week and is mailed, or printed once for you to send.',
    words: one,
    options: { role: { ...roleOption, about: 'role in the organization; default: member' }, ...orgOption },
    run: invite,
  },
  {
    name: 'users invitations',
    usage: '[--org ID]',
    summary: 'List the open invitations, newest first.',
    words: { min: 0, max: 0 },
    options: orgOption,
    run: listInvitations,
  },
  {
    name: 'users uninvite',
    usage: 'ID|EMAIL [--org ID] [--yes]',
    summary: 'Revoke an invitation and its link; asks first.',
    words: one,
    options: { ...yesOption, ...orgOption },
    run: uninvite,
  },
  {
    name: 'users reset-link',
    usage: 'ID|EMAIL [--org ID]',
    summary: 'Create a link to set a new password: it works once, within an hour, and is mailed, or printed only once.',
    words: one,
    options: orgOption,
    run: makeResetLink,
  },
];
