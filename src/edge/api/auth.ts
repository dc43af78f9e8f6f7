import type { MiddlewareHandler } from 'hono';
import { AppError } from '#base/errors.ts';
import { Turns } from '#base/turns.ts';
import {
  type Authenticator,
  type BodyLimits,
  type BodyShares,
  type Caller,
  callerId,
  type ClientAddress,
  createReadBody,
  type HttpContext,
  type HttpEnv,
  type Identity,
  jsonBody,
  type ShowLimits,
} from '#edge/http/http.ts';
import { answerInTime } from './answer-in-time.ts';

/** What stands before a route. The three that ask who calls put `caller` into the context. */
export interface Guards {
  /** Everybody who is known: usage and the wallet may be read by all of them. */
  readonly anyKey: MiddlewareHandler<HttpEnv>;
  /** Scope `management`: keys, projects, and everything that changes something. */
  readonly management: MiddlewareHandler<HttpEnv>;
  /** The same, and a user who administers the platform: organizations, credits and engines. */
  readonly platformAdmin: MiddlewareHandler<HttpEnv>;
  /** Reads and checks the body, for routes that have one; after the key, so that who may not call learns nothing. */
  readonly jsonBody: MiddlewareHandler<HttpEnv>;
}

function requireManagement({ scope }: Caller): void {
  if (scope !== 'management') throw new AppError('insufficient_scope');
}

function requirePlatformAdmin(caller: Caller): void {
  requireManagement(caller);
  if (caller.platformRole === 'admin') return;
  throw new AppError('insufficient_scope', {
    message: 'This API key may not do this: it takes a management key of a platform administrator.',
  });
}

/** Who calls, where the hourly limits have found it out. @throws AppError what they refused with */
function knownCaller(context: HttpContext): Caller | null {
  const identity: Identity | undefined = context.get('identity');
  if (identity === undefined) return null;
  if (identity.refusal !== null) throw identity.refusal;
  return identity.caller;
}

export interface GuardParts {
  readonly authenticator: Authenticator;
  readonly addressOf: ClientAddress;
  readonly showLimits: ShowLimits;
  readonly shares: BodyShares;
  readonly limits: Omit<BodyLimits, 'bodyBytesMax'>;
}

/** Requests of one caller, or of one address where nobody need say who calls. */
const turnBounds = { atOnceMax: 4, waitingMax: 100, waitMsMax: 15_000 };

/** What changes something, such as a revocation, never waits for answers that nobody reads. */
function lineOf({ req: { method } }: HttpContext, caller: Caller): string {
  return `${callerId(caller)} ${method === 'GET' || method === 'HEAD' ? 'reads' : 'changes'}`;
}

export function createGuards({ authenticator, addressOf, showLimits, shares, limits }: GuardParts): Guards {
  const turns = new Turns(turnBounds);
  /** A turn lasts until the answer is read: an unread one is memory, and making it takes a share of the database. */
  const takeTurn = async ({ env: { outgoing } }: HttpContext, name: string): Promise<void> => {
    const end = await turns.take(name);
    if (!outgoing.closed) {
      outgoing.once('close', end);
      return;
    }
    end();
    throw new AppError('request_timeout', { message: 'The connection was closed before the request was answered.' });
  };
  const guard =
    (check: (caller: Caller) => void): MiddlewareHandler<HttpEnv> =>
    async (context, next) => {
      const caller = knownCaller(context) ?? (await authenticator.authenticate(context.env.incoming));
      for (const [name, value] of Object.entries(await showLimits(caller))) context.header(name, value);
      check(caller);
      await takeTurn(context, lineOf(context, caller));
      context.set('caller', caller);
      await (context.req.method === 'DELETE' ? answerInTime(next) : next());
    };
  const readJson = createReadBody({ limits, shares }, [jsonBody]);
  return {
    anyKey: guard(() => undefined),
    management: guard(requireManagement),
    platformAdmin: guard(requirePlatformAdmin),
    jsonBody: async (context, next) => {
      const caller: Caller | undefined = context.get('caller');
      if (caller === undefined) await takeTurn(context, addressOf(context.env.incoming));
      return readJson(context, () => answerInTime(next));
    },
  };
}
