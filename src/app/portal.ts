import type { Clock } from '#base/clock.ts';
import type { Config } from '#base/config.ts';
import type { Db } from '#base/db.ts';
import { AppError } from '#base/errors.ts';
import { parseId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import type { LimitsView } from '#core/limits/limits.ts';
import { createSessions } from '#core/sessions/sessions.ts';
import { type AskApi, createIsSecure, type HttpGuards } from '#edge/http/http.ts';
import { listModels, listPrices } from '#edge/inference/inference.ts';
import { createPortal, type KeyAnswer } from '#edge/portal/portal.ts';
import type { Foundation } from './foundation.ts';
import type { Gateway } from './gateway.ts';
import type { Part } from './parts.ts';

export interface PortalPartOptions {
  readonly config: Pick<Config, 'http' | 'keys' | 'limits'>;
  readonly foundation: Pick<Foundation, 'accounts' | 'audit'>;
  readonly gateway: Pick<Gateway, 'admission' | 'catalog' | 'fleet'>;
  readonly guards: Pick<HttpGuards, 'shares' | 'addressOf'>;
  /** The JSON API in this process. */
  readonly ask: AskApi;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
}

const sweepEveryMs = 3_600_000;

/** The wing for people: pages over what the other wings do, and who is signed in to them. */
export function createPortalPart(options: PortalPartOptions): Part {
  const { config, foundation, gateway, guards, ask, db, clock, log } = options;
  const { accounts, audit } = foundation;
  const sessions = createSessions({ db, clock, audit, accounts });
  const routes = createPortal({
    sessions,
    ask,
    async models(organizationId) {
      const organization = await accounts.readOrganization(organizationId);
      const names = organization?.models ?? null;
      return listModels(gateway, undefined, { usableModels: names === null ? null : new Set(names) }).data;
    },
    prices: () => listPrices(gateway).data,
    limitsLeft: (organizationId, key) => limitsLeft(gateway, organizationId, key),
    maxActiveKeys: config.keys.maxActive,
    isSecure: createIsSecure(config.http.trustedProxies),
    ...guards,
    limits: config.limits,
    clock,
    log,
  });
  return {
    name: 'portal',
    routes,
    jobs: [{ name: 'forget ended sessions', everyMs: sweepEveryMs, where: 'one', run: () => sessions.sweep() }],
  };
}

async function limitsLeft(
  { admission }: Pick<Gateway, 'admission'>,
  organizationId: string,
  key: KeyAnswer,
): Promise<LimitsView | null> {
  const keyId = parseId('key', key.id);
  if (keyId === null) return null;
  const limits = {
    requestsPerMinute: key.requests_per_minute,
    maxConcurrency: key.max_concurrency,
    tokensPerMinute: key.tokens_per_minute,
    monthlyTokenLimit: key.monthly_token_limit,
  };
  try {
    return await admission.view({ organizationId, keyId, limits });
  } catch (error) {
    if (error instanceof AppError) return null;
    throw error;
  }
}
