import {
  cleanLine,
  type Command,
  type CommandContext,
  exitCodes,
  jsonText,
  parseAnswer,
  type Read,
  renderTable,
  timeText,
} from '#edge/cli/shell/shell.ts';
import { enginePath } from './engine-answer.ts';

/** Commands over the running requests of an engine. */

const requestList = async () => (await import('#edge/contract/engines.ts')).runningRequestListSchema;
const request = async () => (await import('#edge/contract/engines.ts')).runningRequestSchema;

const headings = ['STARTED (UTC)', 'STATE', 'REQUEST', 'MODEL', 'ORGANIZATION', 'KEY', 'END USER'];
const row = (one: Read<typeof request>): string[] => [
  timeText(one.created_at),
  one.state,
  one.id,
  one.model,
  one.organization_id,
  one.key_id,
  one.end_user ?? '-',
];

async function list({ api, json, out, terminal, words }: CommandContext): Promise<number> {
  const answer = await api.call('GET', `${enginePath(words[0])}/requests`);
  const { data } = await parseAnswer(requestList, answer);
  if (json) out(jsonText(answer));
  else out(data.length === 0 ? 'no running requests\n' : renderTable(headings, data.map(row), terminal.columns));
  return exitCodes.ok;
}

async function cancel({ api, json, out, words }: CommandContext): Promise<number> {
  const [id, requestId = ''] = words;
  const answer = await api.call('POST', `${enginePath(id)}/requests/${encodeURIComponent(requestId)}/cancel`);
  out(json ? jsonText(answer) : `${cleanLine((await parseAnswer(request, answer)).id)}: canceled\n`);
  return exitCodes.ok;
}

export const requestCommands: readonly Command[] = [
  {
    name: 'engines requests',
    usage: 'ID',
    summary: 'List the running requests of an engine on this gateway, oldest first.',
    words: { min: 1, max: 1 },
    names: 'engines',
    options: {},
    run: list,
  },
  {
    name: 'engines cancel',
    usage: 'ID REQUEST',
    summary: 'Cancel a running request; its client gets an error, and pays what the engine has counted.',
    words: { min: 2, max: 2 },
    names: 'engines',
    options: {},
    run: cancel,
  },
];
