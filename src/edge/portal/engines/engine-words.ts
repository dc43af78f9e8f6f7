import type { EngineAnswer } from '#edge/contract/engines.ts';
import { badge, html, type Html, type MaybeHtml } from '#edge/portal/ui/ui.ts';

/** Formats engines, memory sizes and durations for operators. */

const states: Readonly<Record<EngineAnswer['state'], readonly ['good' | 'busy' | 'bad' | 'plain', string, string]>> = {
  ready: ['good', 'ready', 'Ready to serve.'],
  starting: ['busy', 'starting', 'New requests wait until the engine is ready.'],
  draining: [
    'busy',
    'stopping',
    'Its replicas finish their running requests and stop. A new request waits until the engine is ready again.',
  ],
  stopped: ['plain', 'stopped', 'No replicas run. The next request starts the engine and waits until it is ready.'],
  retrying: ['busy', 'retrying', 'The last start failed. The gateway retries after a pause.'],
  failed: [
    'bad',
    'failed',
    'The engine failed, and there is no automatic retry. Requests are rejected until a start succeeds.',
  ],
  held: [
    'plain',
    'stopped by command',
    'Somebody stopped this engine. Requests do not start it; it stays stopped until somebody starts it.',
  ],
  off: [
    'plain',
    'off by schedule',
    'The schedule in the engine file keeps this engine off. Its requests are rejected.',
  ],
  disabled: ['plain', 'disabled', 'The engine file disables this engine.'],
};

export function engineBadge({ state, rollout }: EngineAnswer): Html {
  const [kind, text] = states[state];
  if (rollout?.state === 'refused') return html`${badge(kind, text)} ${badge('bad', 'new version rejected')}`;
  return rollout === null ? badge(kind, text) : html`${badge(kind, text)} ${badge('busy', 'checking new version')}`;
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

/** Returns "The GPU is full. Attempt 3 of 5 at 12:01:30 UTC or later."; only the message if there is no retry. */
export function failureText({
  message,
  retry_at: retryAt,
  failures,
}: NonNullable<EngineAnswer['last_failure']>): string {
  if (retryAt === null) return message;
  const at = new Date(retryAt * 1000).toISOString().slice(11, 19);
  return `${message.replace(/\.$/, '')}. Attempt ${failures + 1} of 5 at ${at} UTC or later.`;
}

/** Returns the median of the last start times; null before the first start. */
export function expectedStartMs({ start_times_ms: times }: EngineAnswer): number | null {
  const sorted = times.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? null;
}

/** Formats the resources per replica. */
export function needs({ gpus_needed: gpus, memory_needed_bytes: bytes, driver }: EngineAnswer): MaybeHtml {
  if (driver === 'external') return 'external';
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
    ...(bytes === null ? [] : [`${memory(bytes)} memory`]),
  ];
  return texts.length === 0 ? html`<span class="quiet">no GPU</span>` : texts.join(', ');
}

/** Returns the path of an engine's page. Engine ids may contain slashes. */
export const enginePath = (id: string, rest = ''): string => `/portal/engines/${encodeURIComponent(id)}${rest}`;

/** Path of an engine in the API. */
export const engineApiPath = (id: string, rest = ''): string => `/v1/admin/engines/${encodeURIComponent(id)}${rest}`;
