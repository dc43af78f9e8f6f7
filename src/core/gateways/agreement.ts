import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import { type Difference, findDifferences, type LiveGateway, type Published } from './differences.ts';

/** A difference between live gateways, as this gateway sees it. */
export interface StandingDifference extends Difference {
  /** Milliseconds since this gateway first saw the difference. */
  readonly forMs: number;
  /** True if the difference has lasted longer than a rollout takes. */
  readonly isOverdue: boolean;
}

/** Compares this gateway with the other live gateways. */
export interface Agreement {
  /**
   * Reads the others, writes this gateway's published values if they have changed, and logs differences. Must be called
   * every `compareMs`.
   */
  compare(): Promise<void>;
  /** Returns the differences found by the last comparison. */
  differences(): readonly StandingDifference[];
}

export interface AgreementOptions {
  readonly gateways: {
    readonly id: string;
    published(): Published;
    publish(): Promise<void>;
    readLive(): Promise<readonly LiveGateway[]>;
  };
  readonly clock: Pick<Clock, 'monotonicMs'>;
  readonly log: Log;
  /** Duration after which a difference is reported. */
  readonly rolloutMs: number;
}

export const compareMs = 5000;
const loggedMax = 20;

interface Known {
  difference: Difference;
  readonly sinceMs: number;
  isLogged: boolean;
}

export function createAgreement({ gateways, clock, log, rolloutMs }: AgreementOptions): Agreement {
  let known: ReadonlyMap<string, Known> = new Map();
  const isOverdue = ({ sinceMs }: Known, nowMs: number): boolean => nowMs - sinceMs >= rolloutMs;

  return {
    async compare() {
      const live = await gateways.readLive();
      const own = live.find(({ id }) => id === gateways.id);
      // The file of the platform key is read each time, so published values can change without a reload.
      if (own !== undefined && !isDeepStrictEqual(own.published, gateways.published())) await gateways.publish();
      const nowMs = clock.monotonicMs();
      const next = new Map<string, Known>();
      for (const difference of findDifferences(live)) {
        const key = `${difference.kind} ${difference.name}`;
        const before = known.get(key);
        next.set(
          key,
          before === undefined ? { difference, sinceMs: nowMs, isLogged: false } : { ...before, difference },
        );
      }
      if (known.size > 0 && next.size === 0)
        log.info('the gateways of this database have the same configuration again');
      const added = [...next].filter(([key]) => !known.has(key)).map(([, one]) => one);
      known = next;
      if (added.length > 0)
        log.info(logged(added), 'the gateways of this database have different configurations, as during a rollout');
      const late = [...known.values()].filter((one) => isOverdue(one, nowMs) && !one.isLogged);
      for (const one of late) one.isLogged = true;
      if (late.length > 0) {
        log.warn(
          logged(late),
          'gateways of this database have differed for longer than HEADGATE_ROLLOUT_SECONDS; give them the same files, settings, keys and version',
        );
      }
    },
    differences() {
      const nowMs = clock.monotonicMs();
      return [...known.values()].map((one) => {
        return { ...one.difference, forMs: nowMs - one.sinceMs, isOverdue: isOverdue(one, nowMs) };
      });
    },
  };
}

const logged = (those: readonly Known[]): object => ({
  count: those.length,
  differences: those.slice(0, loggedMax).map(({ difference }) => differenceText(difference)),
});

/** Returns a text such as "engine file chat: 3f2a… on a (0198…), not there on b (0199…)". */
export function differenceText({ kind, name, values }: Difference): string {
  const parts = values.map(({ value, gateways }) => `${value ?? 'missing'} on ${gateways.join(', ')}`);
  return `${[kind, name].filter((word) => word !== '').join(' ')}: ${parts.join('; ')}`;
}
