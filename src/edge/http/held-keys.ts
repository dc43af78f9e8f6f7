import { AppError } from '#base/errors.ts';
import type { Accounts } from '#core/accounts/accounts.ts';
import { type ApiKey, type HeldKey, keyPrincipal, type Keys } from '#core/keys/keys.ts';
import { type InferenceAuthenticator, requireActive } from './authenticate.ts';
import type { InferenceCaller } from './http-context.ts';
import type { RawRequest } from './raw-request.ts';

/**
 * The way to models for pages: a request that the gateway itself knows the key of. Who asks is known by the request
 * object, which no client can make: there is no header and no cookie for it.
 */
export interface HeldKeys {
  /** From now on this request is one of that key. */
  hold(request: RawRequest, held: HeldKey): void;
  /** Knows these requests, and asks the other authenticator for all that carry a secret. */
  authenticator(wire: InferenceAuthenticator): InferenceAuthenticator;
}

export interface HeldKeysParts {
  readonly keys: Pick<Keys, 'verifyHeld' | 'touch' | 'untilFresh'>;
  readonly accounts: Pick<Accounts, 'findProject'>;
}

const ended = (): AppError =>
  new AppError('unauthorized', { message: 'The key of the playground was revoked: send it again to get another one.' });

function requireUsable(key: ApiKey | null): ApiKey {
  if (key === null) throw ended();
  requireActive(key);
  return key;
}

export function createHeldKeys({ keys, accounts }: HeldKeysParts): HeldKeys {
  const known = new WeakMap<RawRequest, HeldKey>();
  /** It may have been revoked while something was awaited. */
  const stillValid = (held: HeldKey, before: ApiKey): ApiKey => {
    const key = keys.verifyHeld(held);
    return key instanceof Promise ? before : requireUsable(key);
  };
  const authenticate = async (held: HeldKey): Promise<InferenceCaller> => {
    await keys.untilFresh();
    const key = requireUsable(await keys.verifyHeld(held));
    const project = await accounts.findProject(key.organizationId, key.projectId);
    if (project === null) throw ended();
    keys.touch(key.id);
    return keyPrincipal(stillValid(held, key), project);
  };
  return {
    hold: (request, held) => void known.set(request, held),
    authenticator: (wire) => ({
      authenticate(request) {
        const held = known.get(request);
        return held === undefined ? wire.authenticate(request) : authenticate(held);
      },
      keyNow(request, caller) {
        const held = known.get(request);
        return held === undefined ? wire.keyNow(request, caller) : stillValid(held, caller.key);
      },
    }),
  };
}
