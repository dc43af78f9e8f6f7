import type { Clock } from '#base/clock.ts';
import type { Config, SignInConfig } from '#base/config/config.ts';
import { AppError } from '#base/errors.ts';
import { parseId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { createOidc } from '#base/oidc.ts';
import { defaultKeyToggles } from '#core/keys/keys.ts';
import { readLimitsLeft } from '#core/admission/admission.ts';
import type { LimitsView } from '#core/limits/limits.ts';
import type { KeyAnswer } from '#edge/contract/keys.ts';
import { type AskApi, createIsSecure, type HeldKeys, type HttpGuards, type OpenApi } from '#edge/http/http.ts';
import { type Inference, listPrices, modelRecords } from '#edge/inference/inference.ts';
import { callbackPath, createPortal, type PortalParts, type ProviderParts } from '#edge/portal/portal.ts';
import type { Foundation } from './foundation.ts';
import type { Gateway } from './gateway.ts';
import type { Part } from './lifecycle.ts';
import { problemsOf, type Upkeep } from './upkeep.ts';

export interface PortalPartOptions {
  readonly config: Pick<Config, 'http' | 'keys' | 'limits' | 'signIn'>;
  readonly foundation: Pick<Foundation, 'accounts' | 'keys' | 'letters' | 'sessions'>;
  readonly gateway: Pick<Gateway, 'admission' | 'catalog' | 'fleet' | 'routing'>;
  readonly inference: Pick<Inference, 'serve'>;
  readonly upkeep: Pick<Upkeep, 'figures'>;
  readonly heldKeys: Pick<HeldKeys, 'hold'>;
  readonly guards: Pick<HttpGuards, 'shares' | 'addressOf' | 'wholeAddressOf'>;
  /** The JSON API in this process. */
  readonly ask: AskApi;
  readonly open: OpenApi;
  readonly clock: Clock;
  readonly log: Log;
}

const sweepEveryMs = 3_600_000;

/** Creates the web pages for people, over the functions of the other wings, with their sessions. */
export function createPortalPart(options: PortalPartOptions): Part {
  const { config, foundation, gateway, guards, upkeep, ask, open, clock, log } = options;
  const { accounts, letters, sessions } = foundation;
  const routes = createPortal({
    sessions,
    accounts,
    letters,
    provider: providerOf(config.signIn, log),
    ask,
    open,
    async models(organizationId) {
      const organization = await accounts.readOrganization(organizationId);
      const names = organization?.models ?? null;
      return modelRecords(gateway, undefined, { usableModels: names === null ? null : new Set(names) });
    },
    async heldModels({ actor, organizationId, project }) {
      const by = { organizationId, projectId: project.id, userId: actor.user.id, name: playgroundKeyName };
      return (await foundation.keys.findHeld(by))?.models ?? null;
    },
    prices: () => listPrices(gateway).data,
    remainingLimits: (organizationId, key) => remainingLimits(gateway, organizationId, key, clock.now()),
    callModel: createModelCall(options),
    platformProblems: () => problemsOf(upkeep.figures()).map(({ text }) => text),
    settleTimeoutMs: config.limits.settleTimeoutMs,
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

function providerOf({ oidc, publicUrl }: SignInConfig, log: Log): ProviderParts | null {
  if (oidc === null || publicUrl === null) return null;
  const { name, newPeople } = oidc;
  const organizationId = newPeople === null ? null : parseId('org', newPeople.organizationId);
  return {
    oidc: createOidc({ ...oidc, redirectUri: `${publicUrl}${callbackPath}`, log }),
    name,
    newPeople: newPeople === null || organizationId === null ? null : { organizationId, role: newPeople.role },
    publicUrl,
  };
}

async function remainingLimits(
  { admission }: Pick<Gateway, 'admission'>,
  organizationId: string,
  key: KeyAnswer,
  nowMs: number,
): Promise<LimitsView | null> {
  const keyId = parseId('key', key.id);
  if (keyId === null) return null;
  const limits = {
    requestsPerMinute: key.requests_per_minute,
    maxConcurrency: key.max_concurrency,
    tokensPerMinute: key.tokens_per_minute,
    monthlyTokenLimit: key.monthly_token_limit,
  };
  return readLimitsLeft(admission, { organizationId, keyId, limits }, nowMs);
}

/** Name of the key that the playground of a user calls with. */
const playgroundKeyName = 'Playground';

/**
 * Creates the model calls of the playground. Their requests use an inference key of the signed-in user, created when missing.
 * The key is billed, limited, recorded and revoked like every other key, and nobody has its secret.
 */
function createModelCall({ foundation, inference, heldKeys }: PortalPartOptions): PortalParts['callModel'] {
  return async ({ path, principal, requestId, exchange, stop }) => {
    const { actor, organizationId, project } = principal;
    if (project.archived) {
      throw new AppError('conflict', {
        message:
          `The project "${project.name}" is archived, and the organization has no other active project. An administrator ` +
          'of the organization can unarchive a project.',
      });
    }
    const key = {
      organizationId,
      projectId: project.id,
      userId: actor.user.id,
      name: playgroundKeyName,
      scope: 'inference',
      expires: null,
      limits: {},
      toggles: defaultKeyToggles,
      models: null,
    } as const;
    heldKeys.hold(exchange.incoming, await foundation.keys.hold(key, { actor, requestId }));
    await inference.serve(path, exchange, stop);
  };
}
