import { formatDecimal, MICRO_DIGITS, parseDecimal, PICO_DIGITS } from '#base/money.ts';
import {
  type ApiClient,
  type Command,
  type CommandContext,
  exitCodes,
  fits,
  jsonText,
  parseAnswer,
  type Read,
  renderTable,
  type Terminal,
  textFlag,
} from '#edge/cli/shell/shell.ts';

/** The command over /v1/models. Fields that a newer gateway adds to its answers are ignored. */

export type ListedModel = Read<typeof modelList>['data'][number];

const modelList = async () => (await import('#edge/contract/models.ts')).modelListSchema;

export async function readModels(api: ApiClient): Promise<readonly ListedModel[]> {
  return (await parseAnswer(modelList, await api.call('GET', '/v1/models'))).data;
}

async function list({ api, json, out, terminal, ...context }: CommandContext): Promise<number> {
  const answer = await parseAnswer(modelList, await api.call('GET', '/v1/models'));
  const task = textFlag(context, 'task');
  const data = answer.data.filter(({ task_type: kind }) => task === null || kind === task);
  if (json) out(jsonText({ ...answer, data }));
  else if (data.length === 0)
    out(task === null ? 'this key has no allowed models\n' : `no models for the task ${task}\n`);
  else
    out(
      tableOf(
        data.map((one) => row(one, terminal)),
        terminal.columns,
      ),
    );
  return exitCodes.ok;
}

const headings = ['MODEL', 'TASK', 'STATUS', 'CONTEXT', '$/M INPUT', '$/M CACHED', '$/M OUTPUT', 'NAME'];

/** Renders the table, without names on a narrow terminal: a name repeats the id, and prices are worth more. */
function tableOf(rows: readonly (readonly string[])[], columns: number | null): string {
  const whole = renderTable(headings, rows);
  if (columns === null || fits(whole, columns)) return whole;
  const unnamed = [headings, ...rows].map((line) => line.slice(0, -1));
  return renderTable(unnamed[0] ?? [], unnamed.slice(1), columns);
}

function row({ id, task_type: task, status, context_length: length, pricing, name }: ListedModel, terminal: Terminal) {
  const prices = [pricing?.prompt, pricing?.input_cache_read, pricing?.completion];
  const cells = prices.map((price) => (price === undefined ? '-' : perMillion(price)));
  return [id, task, statusText(status, terminal), String(length), ...cells, name ?? ''];
}

/** Converts USD per token to USD per million tokens, exactly. */
function perMillion(perToken: string): string {
  const scale = PICO_DIGITS + MICRO_DIGITS;
  const value = parseDecimal(perToken, scale);
  return value === null ? perToken : formatDecimal(value, PICO_DIGITS);
}

/**
 * Statuses of a model in the API, best first. `cold`: no engine of the model runs, and a request starts one; `headgate
 * engines ls` shows this engine as `stopped`. `failed`: no engine can be started, or a command stopped it (`held`).
 */
export const modelStatuses = ['ready', 'starting', 'cold', 'failed'] as const;

const colours = { ready: 'green', starting: 'yellow', failed: 'red' } as const;

function statusText(status: string, terminal: Terminal): string {
  const colour = Object.entries(colours).find(([name]) => name === status)?.[1];
  return colour === undefined ? status : terminal.paint(colour, status);
}

export const modelsCommand: Command = {
  name: 'models',
  usage: '[--task TASK]',
  summary:
    'List the models that the key may use: task, status, context length, prices. A cold model has no running engine: the ' +
    'first request starts one, and waits for it.',
  words: { min: 0, max: 0 },
  options: {
    task: {
      type: 'string',
      choices: ['chat', 'vision', 'code', 'completion', 'embedding', 'rerank'],
      about: 'only models for this task',
    },
  },
  run: list,
};
