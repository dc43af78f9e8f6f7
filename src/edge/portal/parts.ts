import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import type { LimitsView } from '#core/limits/limits.ts';
import type { Sessions } from '#core/sessions/sessions.ts';
import type { AskApi, BodyLimits, BodyShares, ClientAddress, IsSecure } from '#edge/http/http.ts';
import type { KeyAnswer, ModelAnswer, PriceAnswer } from './answers.ts';

/** What the pages are made from. */
export interface PortalParts {
  readonly sessions: Sessions;
  /** The JSON API: whatever pages show and do, they ask of it, as who is signed in. */
  readonly ask: AskApi;
  /** The models that an organization may use, as `GET /v1/models` lists them. */
  readonly models: (organizationId: string) => Promise<readonly ModelAnswer[]>;
  /** As `GET /v1/pricing` lists them. */
  readonly prices: () => readonly PriceAnswer[];
  /** What is left of the limits of a key, of which the API has told; null while nobody knows. */
  readonly limitsLeft: (organizationId: string, key: KeyAnswer) => Promise<LimitsView | null>;
  /** Active keys of an organization that says nothing else. */
  readonly maxActiveKeys: number;
  readonly isSecure: IsSecure;
  readonly addressOf: ClientAddress;
  /** How slowly a form may come. */
  readonly limits: Omit<BodyLimits, 'bodyBytesMax'>;
  readonly shares: BodyShares;
  readonly clock: Clock;
  readonly log: Log;
}
