import {
  type Command,
  type CommandContext,
  exitCodes,
  FailedError,
  jsonText,
  parseAnswer,
  pathOf,
  printList,
  printOne,
  queryText,
  type Read,
  readAfterList,
  textFlag,
} from '#edge/cli/shell/shell.ts';
import { limitOf, limitOption, orgOption, orgQuery, outOption, uploadFile, writeContent } from './files.ts';

/** Commands over /v1/batches. Fields that a newer gateway adds to its answers are ignored. */

const batch = async () => (await import('#edge/contract/batches.ts')).batchSchema;
type Batch = Read<typeof batch>;

const batchesPath = '/v1/batches';
const pathOfBatch = (context: CommandContext, rest = ''): string =>
  pathOf(batchesPath, context.words[0]) + rest + queryText(orgQuery(context));

const headings = ['BATCH', 'STATUS', 'COMPLETED', 'FAILED', 'TOTAL', 'MODEL', 'WAITING FOR'];
const row = ({ id, status, request_counts: counts, model, waiting_for: code }: Batch): string[] => [
  id,
  status,
  String(counts.completed),
  String(counts.failed),
  String(counts.total),
  model ?? '-',
  code ?? '-',
];

async function list(context: CommandContext): Promise<number> {
  const found = await readAfterList(context, { path: batchesPath, item: batch, limit: limitOf(context) });
  return printList(context, found, {
    headings,
    row,
    none: 'no batches; create one with "headgate batches create FILE"',
  });
}

/** Creates a batch from a local file, or from the id of an uploaded file. */
async function create(context: CommandContext): Promise<number> {
  const [source = ''] = context.words;
  const isId = /^file_[0-9a-f]{32}$/.test(source);
  const inputFileId = isId ? source : (await uploadFile(context, source)).id;
  const endpoint = textFlag(context, 'endpoint') ?? endpoints[0];
  const body = { input_file_id: inputFileId, endpoint, completion_window: '24h' };
  const answer = await context.api.call('POST', batchesPath, { body });
  const { id } = await parseAnswer(batch, answer);
  context.out(context.json ? jsonText(answer) : `${id}: started; "headgate batches show ${id}" shows its progress\n`);
  return exitCodes.ok;
}

const show = (context: CommandContext): Promise<number> => printOne(context, pathOfBatch(context), batch);

async function cancel(context: CommandContext): Promise<number> {
  const answer = await context.api.call('POST', pathOfBatch(context, '/cancel'));
  const { id, status } = await parseAnswer(batch, answer);
  context.out(context.json ? jsonText(answer) : `${id}: ${status}\n`);
  return exitCodes.ok;
}

async function output(context: CommandContext): Promise<number> {
  const found = await parseAnswer(batch, await context.api.call('GET', pathOfBatch(context)));
  const { id, status, output_file_id: answers, error_file_id: errors } = found;
  const wanted = context.flags['errors'] === true ? errors : answers;
  if (wanted !== null) return writeContent(context, wanted);
  const isOpen = ['validating', 'in_progress', 'finalizing', 'cancelling'].includes(status);
  const why = isOpen
    ? `is ${status}: its files are available when it has ended`
    : `is ${status} and has no such file: "headgate batches show ${id}" shows why`;
  throw new FailedError(`${id} ${why}`);
}

const endpoints = ['/v1/chat/completions', '/v1/completions', '/v1/embeddings', '/v1/responses'] as const;

export const batchCommands: readonly Command[] = [
  {
    name: 'batches ls',
    usage: '[--limit N] [--org ID]',
    summary: 'List batches with their progress, newest first.',
    words: { min: 0, max: 0 },
    options: { ...limitOption, ...orgOption },
    run: list,
  },
  {
    name: 'batches create',
    usage: 'FILE|ID [--endpoint PATH]',
    summary: 'Run the requests of a file within 24 hours, at the flex price.',
    words: { min: 1, max: 1 },
    options: {
      endpoint: { type: 'string', choices: endpoints, about: `for all requests; default: ${endpoints[0]}` },
    },
    run: create,
  },
  {
    name: 'batches show',
    usage: 'ID [--org ID]',
    summary: 'Show a batch: progress, what it waits for, errors in its file.',
    words: { min: 1, max: 1 },
    options: orgOption,
    run: show,
  },
  {
    name: 'batches cancel',
    usage: 'ID [--org ID]',
    summary: 'Cancel a batch; its output keeps the answers so far.',
    words: { min: 1, max: 1 },
    options: orgOption,
    run: cancel,
  },
  {
    name: 'batches output',
    usage: 'ID [--errors] [--out FILE] [--org ID]',
    summary: 'Print the answers of a batch that has ended, or write them to a file.',
    words: { min: 1, max: 1 },
    options: {
      errors: { type: 'boolean', about: 'the failed requests instead of the answers' },
      ...outOption,
      ...orgOption,
    },
    run: output,
  },
];
