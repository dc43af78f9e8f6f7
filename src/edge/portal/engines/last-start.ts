import type { EngineAnswer } from '#edge/contract/engines.ts';
import { html, type MaybeHtml, section, table, timeToSecond } from '#edge/portal/ui/ui.ts';
import { duration } from './engine-words.ts';

/** The timeline of an engine's newest start. */

type Start = NonNullable<EngineAnswer['last_start']>;
type Step = Start['steps'][number];

const words: Readonly<Record<Step['phase'], string>> = {
  requested: 'Waits for its place',
  pulling: 'Pulls the image',
  creating: 'Creates the container',
  downloading: 'Downloads the weights',
  loading: 'Loads the model, until the health check succeeds',
  checking: 'Runs canaries',
  ready: 'Ready to serve',
  failed: 'Failed',
  canceled: 'Stopped before it was ready',
};

/** A phase shorter than a second is shown in milliseconds. */
const shown = (ms: number): string => (ms < 1000 ? `${ms} ms` : duration(ms));

function timeOfPhase({ phase, at, duration_ms: ms }: Step, nowMs: number): string {
  if (ms !== null) return shown(ms);
  return ['ready', 'failed', 'canceled'].includes(phase) ? '' : `${duration(nowMs - at * 1000)} so far`;
}

export function lastStart({ last_start: start, driver }: EngineAnswer, nowMs: number): MaybeHtml {
  if (start === null) return null;
  const { replica, steps, total_ms: total, failure } = start;
  const rows = steps
    // Phases without a wait say nothing.
    .filter(({ phase, duration_ms: ms }) => ms === null || ms > 0 || phase === 'creating')
    .map((step) => [
      step.phase === 'failed' && failure !== null
        ? html`${words.failed}<br /><span class="wrap quiet">${failure.message}</span>`
        : driver === 'process' && step.phase === 'creating'
          ? 'Creates the process'
          : words[step.phase],
      timeToSecond(step.at * 1000),
      timeOfPhase(step, nowMs),
    ]);
  return section(
    'start',
    'Last start',
    html`${table({
        caption: 'Phases of the last start',
        columns: [{ title: 'Phase', isWide: true }, { title: 'Start' }, { title: 'Duration', isNumber: true }],
        rows,
      })}
      <p class="quiet">Replica <code>${replica}</code>, ${shown(total)} in total.</p>`,
  );
}
