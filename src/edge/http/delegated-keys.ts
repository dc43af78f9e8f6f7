import { AppError } from '#base/errors.ts';
import type { Accounts } from '#core/accounts/accounts.ts';
import { type ApiKey, type HeldKey, keyPrincipal, type Keys } from '#core/keys/keys.ts';
import { type InferenceAuthenticator, requireActive } from './authenticate.ts';
import type { InferenceCaller } from './http-context.ts';
import type { RawRequest } from './raw-request.ts';

/**
 * Access to models for pages: requests whose key the gateway itself knows. The request object identifies the key, and
 * no client can create one: there is no header and no cookie for this.
 */
export interface HeldKeys {
  /** Makes this request act with the key from now on. */
  hold(request: RawRequest, held: HeldKey, use?: HeldUse): void;
  /** Authenticates these requests itself, and passes all requests with a secret to the other authenticator. */
  authenticator(wire: InferenceAuthenticator): InferenceAuthenticator;
}

/** Purpose of a request with a held key. */
export interface HeldUse {
  /** A project other than the key's own. */
  readonly projectId?: string;
  /** Message of the error once the key has ended. */
  readonly ended: string;
}

export interface HeldKeysParts {
  readonly keys: Pick<Keys, 'verifyHeld' | 'touch' | 'untilFresh'>;
  readonly accounts: Pick<Accounts, 'findProject'>;
}

const playground: HeldUse = {
  ended: 'The API key of the playground was revoked. Send the message again to get a new key.',
};

interface Known {
  readonly held: HeldKey;
  readonly use: HeldUse;
}

const ended = ({ ended: message }: HeldUse): AppError => new AppError('unauthorized', { message });

function requireUsable(key: ApiKey | null, use: HeldUse): ApiKey {
  if (key === null) throw ended(use);
  requireActive(key);
  return key;
}

export function createHeldKeys({ keys, accounts }: HeldKeysParts): HeldKeys {
  const known = new WeakMap<RawRequest, Known>();
  /** Returns the key in its present state: it may have been revoked during an await. */
  const stillValid = ({ held, use }: Known, before: ApiKey): ApiKey => {
    const key = keys.verifyHeld(held);
    return key instanceof Promise ? before : requireUsable(key, use);
  };
  const authenticate = async (asked: Known): Promise<InferenceCaller> => {
    const { held, use } = asked;
    await keys.untilFresh();
    const key = requireUsable(await keys.verifyHeld(held), use);
    const project = await accounts.findProject(key.organizationId, use.projectId ?? key.projectId);
    if (project === null) throw ended(use);
    keys.touch(key.id);
    return keyPrincipal(stillValid(asked, key), project);
  };
  return {
    hold: (request, held, use = playground) => void known.set(request, { held, use }),
    authenticator: (wire) => ({
      authenticate(request) {
        const asked = known.get(request);
        return asked === undefined ? wire.authenticate(request) : authenticate(asked);
      },
      keyNow(request, caller) {
        const asked = known.get(request);
        return asked === undefined ? wire.keyNow(request, caller) : stillValid(asked, caller.key);
      },
    }),
  };
}
