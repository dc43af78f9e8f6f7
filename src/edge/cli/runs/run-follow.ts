import { setTimeout as sleep } from 'node:timers/promises';
import {
  cleanLine,
  type CommandContext,
  exitCodes,
  createPatience,
  FailedError,
  jsonText,
  parseAnswer,
  pathOf,
  type Read,
} from '#edge/cli/shell/shell.ts';

/** Follows runs until they end. The gateway may restart meanwhile, and no line is printed twice. */

export const run = async () => (await import('#edge/contract/runs.ts')).runSchema;
export type Run = Read<typeof run>;

const logLine = async () => (await import('#edge/contract/runs.ts')).runLogLineSchema;
type LogLine = Read<typeof logLine>;
const logPage = async () => (await import('#edge/contract/runs.ts')).runLogSchema;

export const runsPath = '/v1/runs';
export const runPath = (id: string | undefined): string => pathOf(runsPath, id);

const againMs = 1000;
const pageLines = 10_000;

/** Statuses of a successful run, by operation. A plan that waits for its confirmation is a success. */
const planned = ['PLANNED', 'PLANNED_AND_FINISHED'];
const success: Readonly<Record<string, readonly string[]>> = {
  apply: ['APPLIED', 'SUPERSEDED', ...planned],
  destroy: ['DESTROYED', ...planned],
};

export const hasSucceeded = ({ operation, status }: Run): boolean => (success[operation] ?? []).includes(status);

export async function readRun({ api }: CommandContext, id: string | undefined): Promise<Run> {
  return parseAnswer(run, await api.call('GET', runPath(id)));
}

function printLine({ json, out }: CommandContext, line: LogLine): void {
  if (json) {
    out(`${JSON.stringify(line)}\n`);
    return;
  }
  const time = line.at.slice('YYYY-MM-DDT'.length, 'YYYY-MM-DDTHH:mm:ss'.length);
  const level = line.level === 'info' ? '' : `${line.level}: `;
  const [first = '', ...more] = line.message.split('\n').map(cleanLine);
  const head = `${time} ${line.phase.padEnd('apply'.length)} `;
  const rest = more.map((text) => `${' '.repeat(head.length)}${text}\n`);
  out(`${cleanLine(head)}${level}${first}\n${rest.join('')}`);
}

/** Prints all lines after the line numbered `after`. */
export async function printLog(context: CommandContext, id: string, after: number): Promise<void> {
  for (let position = after; ;) {
    const path = `${runPath(id)}/logs?after=${position}&limit=${pageLines}`;
    const { data, next_after: next } = await parseAnswer(logPage, await context.api.call('GET', path));
    for (const line of data) printLine(context, line);
    if (data.length === 0) return;
    position = next;
  }
}

/**
 * Prints lines after the line numbered `after` as they arrive. @returns when the run has ended and all lines are
 * printed
 */
export async function followLog(context: CommandContext, id: string, after: number): Promise<void> {
  const position = { last: String(after), isEnd: false };
  const patience = createPatience(context);
  for (;;) {
    try {
      for await (const line of linesOf(context, id, position)) {
        patience.arrived();
        printLine(context, line);
      }
    } catch (error) {
      patience.lost(error);
    }
    if (position.isEnd) return;
    await sleep(againMs);
  }
}

/** Yields the lines of one connection, and moves the position with them. */
async function* linesOf({ api }: CommandContext, id: string, position: { last: string; isEnd: boolean }) {
  for await (const event of api.events(`${runPath(id)}/logs`, position.last)) {
    position.isEnd = event.event === 'status';
    if (position.isEnd) return;
    yield await parseLine(event.data);
    position.last = event.id;
  }
}

async function parseLine(data: string): Promise<LogLine> {
  try {
    return await parseAnswer(logLine, JSON.parse(data));
  } catch (error) {
    if (error instanceof FailedError) throw error;
    throw new FailedError('the gateway sent a log line that is not JSON');
  }
}

/** Prints the progress of a run until the run ends, or its plan waits for its confirmation. @returns the run then */
export async function waitForEnd(context: CommandContext, started: Run): Promise<Run> {
  const { json, err } = context;
  const patience = createPatience(context);
  let told = '';
  for (let now = started; ;) {
    const text = now.phase === null || now.ended_at !== null ? now.status : `${now.status} (${now.phase})`;
    if (!json && text !== told && now.ended_at === null && now.status !== 'PLANNED') err(`${now.id}: ${text}\n`);
    told = text;
    if (now.ended_at !== null || now.status === 'PLANNED') return now;
    await sleep(againMs);
    try {
      now = await readRun(context, now.id);
      patience.arrived();
    } catch (error) {
      patience.lost(error);
    }
  }
}

/** Describes the plan of a run that has not applied it. */
function planText({ status, plan, drift_check_of: checked }: Run): string {
  const isShown = plan !== null && (status === 'PLANNED' || status === 'PLANNED_AND_FINISHED');
  if (isShown && (checked ?? null) !== null)
    return plan.change + plan.remove === 0 ? '; no drift' : `; drift: ${plan.change} changed, ${plan.remove} deleted`;
  return isShown ? `; plan: ${plan.add} to add, ${plan.change} to change, ${plan.remove} to remove` : '';
}

/** Describes the changes; empty for a plan that was not applied, which changed nothing. */
function changesText({ changes, ended_at: ended }: Run): string {
  if (changes === null || ended === null || changes.operation === 'plan') return '';
  return `; ${changes.add} added, ${changes.change} changed, ${changes.remove} removed`;
}

/** Remarks on a web address that does not answer. */
const addressRemarks: Readonly<Record<string, string>> = {
  pending: ' (not reachable yet)',
  unreachable: ' (unreachable)',
};

/** Formats an ISO time to the second. */
export const isoText = (iso: string): string => iso.slice(0, 'YYYY-MM-DDTHH:mm:ss'.length).replace('T', ' ');

/** Says when the resources are destroyed. */
const expiryText = ({ expires_at: at }: Run): string =>
  (at ?? '') === '' ? '' : `expires at ${isoText(at ?? '')} UTC\n`;

/** Says what the last drift checks found; empty for a run without drift. */
function driftText({ id, check_drift: isChecked, drift, status }: Run): string {
  const off =
    isChecked === false && status === 'APPLIED' ? `not checked for drift: headgate runs drift-check ${id} on\n` : '';
  const found =
    drift?.status === 'drifted'
      ? `DRIFTED: ${drift.changed} changed, ${drift.deleted} deleted; headgate runs plan ${drift.check_run_id}\n`
      : '';
  const failedId = drift?.failed_run_id ?? null;
  return `${found}${failedId === null ? '' : `drift check failed: headgate runs show ${failedId}\n`}${off}`;
}

function addressText({ id, access, url, url_status: state, url_problem: problem }: Run): string {
  if ((problem ?? '') !== '') return `no web address: ${cleanLine(problem ?? '')}\n`;
  if ((url ?? '') === '') return '';
  const link = access === 'members' ? `; for members: headgate runs open ${id}` : '';
  return `web address: ${cleanLine(url ?? '')}${addressRemarks[state ?? ''] ?? ''}${link}\n`;
}

/** Describes a run in one line, followed by its outputs and its web address, if there are any. */
export function runText(one: Run): string {
  const { id, status, failure_code: code, failure_message: message, confirm_by: by } = one;
  const next =
    by === null
      ? ''
      : `; "headgate runs plan ${id}" shows the plan, "runs confirm" or "runs discard" ends the wait, until ${by.slice(0, 16)} UTC`;
  const failure = code === null ? '' : `; ${code}: ${cleanLine(message ?? '')}`;
  const outputs = status === 'APPLIED' ? (one.outputs ?? {}) : {};
  const lines = Object.keys(outputs)
    .toSorted()
    .map((name) => {
      const { sensitive = true, value } = outputs[name] ?? {};
      const shown = sensitive ? '(sensitive)' : typeof value === 'string' ? value : JSON.stringify(value ?? null);
      return `${cleanLine(name)} = ${cleanLine(shown)}\n`;
    });
  const log = status === 'FAILED' && one.log_lines > 0 ? `log: headgate runs logs ${id}\n` : '';
  return `${id}: ${status}${planText(one)}${changesText(one)}${failure}${next}\n${log}${lines.join('')}${addressText(one)}${expiryText(one)}${driftText(one)}`;
}

const plan = async () => (await import('#edge/contract/runs.ts')).runPlanSchema;
type Resource = Read<typeof plan>['resources'][number];

const signs: Readonly<Record<string, string>> = { create: '+', update: '~', replace: '-/+', delete: '-', read: '<=' };

/** Prints the plan of a run in Terraform's notation. */
export async function showPlan(context: CommandContext): Promise<number> {
  const answer = await context.api.call('GET', `${runPath(context.words[0])}/plan`);
  const { resources, truncated } = await parseAnswer(plan, answer);
  const lines = resources.length === 0 && !truncated ? ['no changes'] : resources.flatMap(resourceLines);
  const more = truncated ? ['the plan is too large to show completely'] : [];
  context.out(context.json ? jsonText(answer) : `${[...lines, ...more].join('\n')}\n`);
  return exitCodes.ok;
}

function resourceLines({ address, action, attributes }: Resource): string[] {
  const shown = attributes.map(({ name, sensitive, unknown, before, after }) => {
    const old = textOf(before, sensitive);
    return `      ${cleanLine(name)}: ${old} -> ${unknown ? '(known after apply)' : textOf(after, sensitive)}`;
  });
  return [`${(signs[action] ?? '').padStart(3)} ${cleanLine(address)} (${action})`, ...shown];
}

const textOf = (value: unknown, isSensitive: boolean): string => {
  if (value === undefined) return isSensitive ? '(sensitive)' : '(none)';
  return cleanLine(JSON.stringify(value));
};
