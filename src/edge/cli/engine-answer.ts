import { pathOf, type Read } from '#edge/cli/shell/shell.ts';

/** Reads engines, and formats texts about them. */

export const engine = async () => (await import('#edge/contract/engines.ts')).engineSchema;
export type Engine = Read<typeof engine>;

export const enginesPath = '/v1/admin/engines';

export const enginePath = (id: string | undefined): string => pathOf(enginesPath, id);

/** Describes a problem or progress of an engine, with the command that fixes the problem if there is one. */
export function remark(one: Engine): string {
  const { id, state, driver, file, last_failure: failure, rollout, replicas } = one;
  if (state === 'held') return `stopped by a command; to start it: ${commandText('start', id)}`;
  if (state === 'off') return offText(one);
  if (rollout?.state === 'refused') {
    const fix = `fix ${file ?? 'its file'}, then: ${commandText('reload')}`;
    return sentences(`new version rejected: ${rollout.message ?? ''}`, fix);
  }
  if (failure !== null && failure !== undefined) {
    const text = sentences(failure.message, shortened(failure.detail ?? ''), retryText(state, failure));
    // Headgate cannot fix an external engine, and probes it all the time.
    const isGivenUp = state === 'failed' && driver !== 'external' && (failure.retry_at ?? null) === null;
    return isGivenUp ? sentences(text, `once it is fixed: ${commandText('reset', id)}`) : text;
  }
  const silent = replicas.filter(({ state: itsState, healthy }) => itsState === 'ready' && healthy === false);
  if (silent.length > 0) return `no answer to health checks: ${silent.map(replicaName).join(', ')}`;
  return progressText(one);
}

function replicaName({ id, host, deployment }: Engine['replicas'][number]): string {
  return deployment?.name ?? host ?? id;
}

function offText({ schedule }: Engine): string {
  const at = schedule?.next_at ?? null;
  return at === null
    ? 'off by its schedule'
    : `off by its schedule until ${new Date(at * 1000).toISOString().slice(0, 16)}Z`;
}

/** Returns the progress of a start; the warnings of an engine that does not start. */
function progressText({ replicas, warnings }: Engine): string {
  const progress = replicas.map((replica) => replica.progress ?? null).find((text) => text !== null);
  return progress ?? (warnings ?? []).join(' ');
}

/** Returns the versions of the running replicas, such as "0.32.0" or "0.99.0 (untried)"; "-" for another kind. */
export function versionsText({ replicas }: Engine): string {
  const texts = replicas.flatMap(({ version }) => {
    if (version === null || version === undefined) return [];
    return [version.name === null ? 'unknown' : `${version.name}${version.tried ? '' : ' (untried)'}`];
  });
  return [...new Set(texts)].join(', ') || '-';
}

function sentences(...parts: readonly string[]): string {
  return parts
    .filter((part) => part !== '')
    .join('; ')
    .replaceAll('.;', ';');
}

type Failure = NonNullable<Engine['last_failure']>;

/** Returns "attempt 3 of 5 at the earliest at 12:01:30 UTC"; empty if there is no retry. */
function retryText(state: string, { retry_at: retryAt, failures }: Failure): string {
  if (state !== 'retrying' || retryAt === null || retryAt === undefined) return '';
  const count = failures === null || failures === undefined ? 'next attempt' : `attempt ${failures + 1} of 5`;
  return `${count} at the earliest at ${new Date(retryAt * 1000).toISOString().slice(11, 19)} UTC`;
}

const detailCharsMax = 160;

/** Shortens a detail, which `engines show` prints in full. */
function shortened(text: string): string {
  return text.length <= detailCharsMax ? text : `${text.slice(0, detailCharsMax - 1).trimEnd()}…`;
}

/** Returns the command as typed in a shell. */
export function commandText(command: string, id: string | null = null): string {
  const word = id === null || /^[\w./:-]+$/.test(id) ? (id ?? '') : `'${id}'`;
  return `headgate engines ${command} ${word}`.trim();
}

/** Counts replicas that answer requests. */
export function readyCount({ replicas }: Engine): number {
  return replicas.filter(({ state, healthy }) => state === 'ready' && healthy !== false).length;
}
