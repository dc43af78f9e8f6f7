import { badge, type EngineAnswer, type EngineState, html, type Html, type MaybeHtml } from '#edge/portal/ui/ui.ts';

/** Formats engines, memory sizes and durations for operators. */

const states: Readonly<Record<EngineState, readonly ['good' | 'busy' | 'bad' | 'plain', string, string]>> = {
  ready: ['good', 'ready', 'It answers at once.'],
  starting: ['busy', 'starting', 'Requests that come now wait until it is ready.'],
  draining: ['busy', 'stopping', 'It finishes what runs and takes nothing new.'],
  stopped: ['plain', 'stopped', 'Nothing runs. The next request starts it, and waits until it is ready.'],
  retrying: ['busy', 'retrying', 'The last start failed. It is started again, after a pause.'],
  failed: ['bad', 'failed', 'It is given up after failures. Requests are refused until a start succeeds.'],
  held: [
    'plain',
    'held stopped',
    'An order stopped it. It stays stopped, whatever is asked of it, until somebody starts it.',
  ],
  disabled: ['plain', 'disabled', 'Its file says that it is not to run.'],
};

export function engineBadge({ state, rollout }: EngineAnswer): Html {
  const [kind, text] = states[state];
  if (rollout?.state === 'refused') return html`${badge(kind, text)} ${badge('bad', 'new version refused')}`;
  return rollout === null ? badge(kind, text) : html`${badge(kind, text)} ${badge('busy', 'new version is checked')}`;
}

export const stateWords = ({ state }: EngineAnswer): string => states[state][2];

const gib = 1_073_741_824;

/** Returns "80 GiB"; "?" if unknown. */
export function memory(bytes: number | null): string {
  if (bytes === null) return '?';
  const value = bytes / gib;
  return `${value >= 10 ? value.toFixed(0) : value.toFixed(1)} GiB`;
}

/** Returns "12 s", "3 min 20 s", "5 h 12 min" or "3 d 4 h". */
export function duration(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const units = [
    ['d', 86_400],
    ['h', 3600],
    ['min', 60],
    ['s', 1],
  ] as const;
  const first = units.findIndex(([, size]) => seconds >= size);
  const shown = units.slice(first === -1 ? 3 : first, (first === -1 ? 3 : first) + 2);
  let left = seconds;
  return shown
    .flatMap(([name, size], index) => {
      const count = Math.floor(left / size);
      left -= count * size;
      return count === 0 && index > 0 ? [] : [`${count} ${name}`];
    })
    .join(' ');
}

/** Returns "The GPU is full. Try 3 of 5, not before 12:01:30 UTC."; only the message if there is no retry. */
export function failureText({
  message,
  retry_at: retryAt,
  failures,
}: NonNullable<EngineAnswer['last_failure']>): string {
  if (retryAt === null) return message;
  const at = new Date(retryAt * 1000).toISOString().slice(11, 19);
  return `${message.replace(/\.$/, '')}. Try ${failures + 1} of 5, not before ${at} UTC.`;
}

/** Returns the median of the last start times; null before the first start. */
export function expectedStartMs({ start_times_ms: times }: EngineAnswer): number | null {
  const sorted = times.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? null;
}

/** Formats the resources per replica. */
export function needs({ gpus_needed: gpus, memory_needed_bytes: bytes, driver }: EngineAnswer): MaybeHtml {
  if (driver === 'external') return 'run by somebody else';
  const texts = [
    ...(gpus === null
      ? []
      : [
          [
            `${gpus.count} GPU${gpus.count === 1 ? '' : 's'}`,
            gpus.profile === null ? '' : ` ${gpus.profile}`,
            gpus.memory_bytes === null ? '' : ` with ${memory(gpus.memory_bytes)}`,
          ].join(''),
        ]),
    ...(bytes === null ? [] : [`${memory(bytes)} of memory`]),
  ];
  return texts.length === 0 ? html`<span class="quiet">no GPU</span>` : texts.join(', ');
}

/** Returns the path of an engine's page. Engine ids may contain slashes. */
export const enginePath = (id: string, rest = ''): string => `/portal/engines/${encodeURIComponent(id)}${rest}`;
