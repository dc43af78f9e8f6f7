import {
  type Command,
  type CommandContext,
  exitCodes,
  jsonText,
  parseAnswer,
  readCursorList,
  type Read,
  renderTable,
  textFlag,
  UsageError,
} from '#edge/cli/shell/shell.ts';

/** The commands over /v1/admin/holds. Fields that a newer gateway adds to its answers are ignored. */

const hold = async () => (await import('#edge/contract/wallet.ts')).holdSchema;

const released = async () => (await import('#edge/contract/wallet.ts')).releasedHoldSchema;

const headings = ['REQUEST', 'ORGANIZATION', 'HELD', 'SPOOLED', 'SINCE (UTC)', 'GATEWAY'];

async function list(context: CommandContext): Promise<number> {
  const { out, json, terminal } = context;
  const request = {
    path: '/v1/admin/holds',
    item: hold,
    query: {},
    limit: Infinity,
    parameter: 'cursor',
  } as const;
  const all = await readCursorList(context, request);
  if (json) out(jsonText(all));
  else if (all.length === 0) out('no holds left by stopped gateways\n');
  else out(renderTable(headings, all.map(row), terminal.columns));
  return exitCodes.ok;
}

function row(one: Read<typeof hold>): string[] {
  const since = new Date(one.created_at * 1000).toISOString().slice(0, 19).replace('T', ' ');
  return [one.id, one.organization_id, one.held, one.spooled ? 'yes' : 'no', since, one.gateway_id];
}

async function release(context: CommandContext): Promise<number> {
  const reason = textFlag(context, 'reason');
  if (reason === null)
    throw new UsageError('--reason is missing, the reason for the audit log: headgate holds release ID --reason TEXT');
  const path = `/v1/admin/holds/${encodeURIComponent(context.words[0] ?? '')}/release`;
  const answer = await context.api.call('POST', path, { body: { reason } });
  const { id, held } = await parseAnswer(released, answer);
  context.out(context.json ? jsonText(answer) : `${id}: released $${held}\n`);
  return exitCodes.ok;
}

export const holdCommands: readonly Command[] = [
  {
    name: 'holds ls',
    usage: '',
    summary: 'List wallet holds left by stopped gateways.',
    words: { min: 0, max: 0 },
    options: {},
    run: list,
  },
  {
    name: 'holds release',
    usage: 'ID --reason TEXT',
    summary: 'Release a hold of a stopped gateway to its wallet; the audit log keeps the reason.',
    words: { min: 1, max: 1 },
    options: { reason: { type: 'string', about: 'reason, for the audit log' } },
    run: release,
  },
];
