import {
  cleanLine,
  type Command,
  type CommandContext,
  confirm,
  exitCodes,
  FailedError,
  jsonText,
  parseAnswer,
  type Read,
  renderTable,
  yesOption,
} from '#edge/cli/shell/shell.ts';

/** Command over /v1/admin/unused-storage. */

const unusedList = async () => (await import('#edge/contract/hosts.ts')).unusedStorageSchema;

const unusedPath = '/v1/admin/unused-storage';
const headings = ['TYPE', 'NAME', 'HOST', 'GIB'];

type Item = Read<typeof unusedList>['data'][number];

const gib = (bytes: number): string => (bytes / 2 ** 30).toFixed(1);
const row = ({ type, name, host, bytes }: Item): string[] => [type, name, host, gib(bytes)];

async function prune(context: CommandContext): Promise<number> {
  const { api, json, out, terminal, words } = context;
  const answer = await api.call('GET', unusedPath);
  const { data } = await parseAnswer(unusedList, answer);
  if (words.length === 0) {
    if (json) out(jsonText(answer));
    else
      out(data.length === 0 ? 'no unused images or weights\n' : renderTable(headings, data.map(row), terminal.columns));
    return exitCodes.ok;
  }
  const missing = words.find((word) => !data.some(({ name }) => name === word));
  if (missing !== undefined) {
    throw new FailedError(`${cleanLine(missing)} is not unused; "headgate engines prune" lists what is`);
  }
  const bytes = data.reduce((sum, one) => sum + (words.includes(one.name) ? one.bytes : 0), 0);
  await confirm(context, {
    question: `Delete ${words.join(', ')} (${gib(bytes)} GiB)?`,
    consequence: 'An engine that needs them again downloads them again.',
    done: 'deleted',
  });
  for (const word of new Set(words)) {
    const deleted = await api.call('DELETE', `${unusedPath}/${encodeURIComponent(word)}`);
    const items = (await parseAnswer(unusedList, deleted)).data;
    if (json) out(jsonText(deleted));
    else for (const one of items) out(`${one.type} ${cleanLine(one.name)} on ${cleanLine(one.host)}: deleted\n`);
  }
  return exitCodes.ok;
}

export const pruneCommand: Command = {
  name: 'engines prune',
  usage: '[NAME…] [--yes]',
  summary: 'List images and weights that no engine file names; with names, delete these after a confirmation.',
  words: { min: 0, max: 1000 },
  options: yesOption,
  run: prune,
};
