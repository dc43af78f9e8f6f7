import {
  type Command,
  type CommandContext,
  exitCodes,
  FailedError,
  jsonText,
  parseAnswer,
  type Read,
  renderTable,
  textFlag,
  UsageError,
} from '#edge/cli/shell/shell.ts';

/** The command over /v1/admin/reconcile. Fields that a newer gateway adds to its answers are ignored. */

const reconciliation = async () => (await import('#edge/contract/reconcile.ts')).reconciliationSchema;

type Reconciliation = Read<typeof reconciliation>;
type Line = Reconciliation['data'][number];

/** Milliseconds to wait for an answer: a month with many records takes minutes to read. */
const answerTimeoutMs = 900_000;
const differencesShownMax = 20;

/**
 * Asks the gateway. An unreachable gateway, or an error, says nothing about the books.
 * @throws UsageError with the gateway's message, so that the exit code is not that of a difference
 */
async function ask({ api }: CommandContext, path: string) {
  try {
    const answer = await api.call('GET', path, { answerTimeoutMs });
    return { answer, found: await parseAnswer(reconciliation, answer) };
  } catch (error) {
    throw error instanceof FailedError ? new UsageError(error.message) : error;
  }
}

async function reconcile(context: CommandContext): Promise<number> {
  const query = new URLSearchParams();
  for (const name of ['from', 'to']) {
    const value = textFlag(context, name);
    if (value !== null) query.set(name, value);
  }
  const { answer, found } = await ask(context, `/v1/admin/reconcile?${query.toString()}`);
  context.out(context.json ? jsonText(answer) : textOf(found, context.terminal.columns));
  return found.balanced ? exitCodes.ok : exitCodes.failed;
}

const headings = ['HOUR (UTC)', 'MODEL', 'REQUESTS', 'USAGE', 'LEDGER', 'PROMPT', 'COMPLETION', ''];

function textOf(
  { balanced, unexplained, data, ledger_differences: ledger }: Reconciliation,
  columns: number | null,
): string {
  const table = data.length === 0 ? 'no usage\n' : renderTable(headings, data.map(row), columns);
  const shown = ledger.slice(0, differencesShownMax).map((one) => {
    const { entry_id: entry, organization_id: organization, request_id: request } = one;
    const sides = `ledger ${one.ledger.cost} for ${one.ledger.requests}, usage ${one.usage.cost} for ${one.usage.requests}`;
    return `${organization}: ${entry === null ? `no entry for request ${request}` : `entry ${entry}`}: ${sides}\n`;
  });
  const more = ledger.length - shown.length;
  const rest = more > 0 ? `and ${more} more ledger entries; --json prints all\n` : '';
  const verdict = balanced
    ? 'balanced: every difference is explained\n'
    : `${unexplained} lines have an unexplained difference\n`;
  return `${table}${shown.join('')}${rest}${verdict}`;
}

function row(one: Line): string[] {
  const { model, open, usage, ledger, engines, expected } = one;
  const hour = `${new Date(one.hour * 1000).toISOString().slice(0, 13).replace('T', ' ')}h${open ? ', open' : ''}`;
  return [
    hour,
    model ?? '(no record)',
    String(usage.requests),
    usage.cost,
    one.difference.cost === '0' ? ledger.cost : `${ledger.cost} (${signed(one.difference.cost)})`,
    tokensCell(engines?.prompt_tokens ?? null, expected.prompt_tokens, one.difference.prompt_tokens),
    tokensCell(engines?.completion_tokens ?? null, expected.completion_tokens, one.difference.completion_tokens),
    remark(one),
  ];
}

/** Formats the tokens that engines counted, and by how many they differ from the expected tokens. */
function tokensCell(counted: number | null, expected: number, more: number): string {
  if (more !== 0) return `${counted ?? 0} (${signed(String(more))})`;
  return counted === null ? `- of ${expected}` : String(counted);
}

const signed = (text: string): string => (text.startsWith('-') ? text : `+${text}`);

function remark({ state, problem, explanations }: Line): string {
  const reasons = explanations.map(reasonText);
  const head = state === 'unexplained' ? [`NOT EXPLAINED: ${problem ?? ''}`] : [];
  return [...head, ...reasons].join('; ');
}

const words: Readonly<Record<string, string>> = {
  carried: 'still running at the end of the hour',
  running: 'running now',
  unsure: 'ended before the engine reported its last count',
  choices: 'with several choices, not completed: the engine may have counted the prompt for each choice',
  uncounted: 'probes, canaries, retries or parts for which the engine reported no count',
  replica_ended: 'replica crashed, or could not be read at its end',
  replica_found: 'replica first read after it had already counted tokens',
  gateway_ended: 'gateway was killed, and its running requests are unknown',
  adapter_moved: 'of a LoRA adapter that moved to another base model',
  retention: 'records deleted after HEADGATE_USAGE_DAYS',
  cache_hit: 'answered from the cache',
  canary: 'canary',
  probe: 'probe',
  retry: 'retried on another replica',
  undelivered: 'generated, not delivered, not billed',
};

function reasonText({
  kind,
  count,
  prompt_tokens: prompt,
  completion_tokens: completion,
  detail,
}: Line['explanations'][number]) {
  const named = `${count} ${words[kind] ?? kind}`;
  const bounds =
    prompt === null || completion === null
      ? ' (any number of tokens)'
      : prompt + completion === 0
        ? ''
        : ` (${prompt} prompt + ${completion} completion tokens)`;
  return `${named}${bounds}${(detail ?? '') === '' ? '' : `: ${detail ?? ''}`}`;
}

export const reconcileCommand: Command = {
  name: 'reconcile',
  usage: '[--from TIME] [--to TIME]',
  summary:
    'Compare ledger, usage and the counters of engines, by hour and model; exits with 1 if a difference is unexplained, with 2 if the gateway cannot be reached or rejects the request.',
  words: { min: 0, max: 0 },
  options: {
    from: { type: 'string', about: 'date or RFC 3339 time; default: 24 hours ago' },
    to: { type: 'string', about: 'end, exclusive; default: now' },
  },
  run: reconcile,
};
