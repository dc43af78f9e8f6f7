import type { MiddlewareHandler, Next } from 'hono';
import { duringChange } from '#base/database/database.ts';
import { AppError, needsPlatformAdmin } from '#base/errors.ts';
import { ConcurrencyLimit } from '#base/queues/queues.ts';
import { type Accounts, type Action, type Extent, extentOf, isOfPlatform } from '#core/accounts/accounts.ts';
import {
  type Authenticator,
  type BodyLimits,
  type BodyReader,
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
  smallJsonBody,
  ValidationError,
} from '#edge/http/http.ts';
import type { OnceGuards } from './once.ts';
import { notFound, requireId } from './schemas.ts';

/** Milliseconds after which a change is late: its connection is lost, or it waits for another transaction. */
const answerMsMax = 20_000;

/** Time limit of an answer, which starts at once. */
interface AnswerTime {
  /** Stops the time while a body arrives, which has a bound of its own. */
  readonly pause: () => void;
  /** Restarts the time from zero; `ms` is for changes that normally take longer. */
  readonly start: (ms?: number) => void;
}

/**
 * Answers a change in time even if PostgreSQL does not respond: then nobody knows if the change was made.
 * @throws AppError outcome_unknown if the change is late; the change itself is not stopped
 */
async function answerInTime(change: (time: AnswerTime) => Promise<void>): Promise<void> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  let timer: NodeJS.Timeout | undefined;
  const pause = (): void => clearTimeout(timer);
  const start = (ms = answerMsMax): void => {
    pause();
    timer = setTimeout(() => reject(new AppError('outcome_unknown')), ms);
  };
  start();
  try {
    await Promise.race([change({ pause, start }), late]);
  } finally {
    pause();
  }
}

/** Middleware and checks of routes. `may` puts `caller` into the context. */
export interface Guards extends OnceGuards {
  /**
   * Returns middleware that allows an action by the table of roles: on the whole organization, or, if `least` is `own`,
   * on the caller's own resources. Also puts `extent` into the context.
   */
  readonly may: (action: Action, least?: 'own' | 'organization') => MiddlewareHandler<HttpEnv>;
  /**
   * Prepares an answer that lasts as long as its reader stays; call it after `may`. Such an answer delays no other read
   * of the caller, and each caller may have a limited number of them.
   * @returns a function that authenticates the caller again and puts the new `caller` into the context, since keys are
   * revoked and people leave meanwhile. The function throws what `may` throws
   * @throws TooManyWaitError
   */
  readonly stayOpen: (context: HttpContext, action: Action) => Promise<() => Promise<void>>;
  /** Middleware for changes that fetch or read much, which gives them more time; after `may`. */
  readonly slowly: MiddlewareHandler<HttpEnv>;
  /**
   * Middleware for bodies that are processed while they arrive. The middleware pauses the time limit of the change,
   * since the body has bounds of its own.
   */
  readonly streamedBody: MiddlewareHandler<HttpEnv>;
  /** Middleware that reads and checks the body after authentication, so that unauthorized callers learn nothing. */
  readonly jsonBody: MiddlewareHandler<HttpEnv>;
  /** As `jsonBody`, for users and projects, whose bodies are small. */
  readonly smallJsonBody: MiddlewareHandler<HttpEnv>;
  /**
   * Returns the organization of a request: the named organization, otherwise the caller's own. Call it after `may`.
   * @param named id of an organization in the body; `organization_id` of the query must be equal or absent
   * @throws ValidationError if body and query name different organizations
   * @throws AppError not_found for an organization that does not exist, or that the caller may not name
   */
  readonly organizationOf: (context: HttpContext, named?: string) => Promise<string>;
  /**
   * Returns the organization whose resources a list contains: as `organizationOf`, but all organizations (null) for a
   * platform administrator who names none.
   * @throws AppError not_found as `organizationOf`
   */
  readonly organizationOrAll: (context: HttpContext) => Promise<string | null>;
}

/** @throws AppError insufficient_scope */
function requireExtent(caller: Caller, action: Action, least: 'own' | 'organization'): Extent {
  const extent = extentOf(caller, action);
  if (extent !== 'none' && (extent !== 'own' || least === 'own')) return extent;
  if (!isOfPlatform(action)) throw new AppError('insufficient_scope');
  throw new AppError('insufficient_scope', { message: needsPlatformAdmin });
}

/**
 * Returns the caller that the hourly limits have identified; null if they have not run. @throws AppError of their
 * rejection
 */
function knownCaller(context: HttpContext): Caller | null {
  const identity: Identity | undefined = context.get('identity');
  if (identity === undefined) return null;
  if (identity.refusal !== null) throw identity.refusal;
  return identity.caller;
}

export interface GuardParts {
  readonly authenticator: Authenticator;
  readonly accounts: Pick<Accounts, 'readOrganization'>;
  readonly addressOf: ClientAddress;
  readonly showLimits: ShowLimits;
  readonly shares: BodyShares;
  readonly limits: Omit<BodyLimits, 'bodyBytesMax'>;
  readonly onceGuards: OnceGuards;
}

/** Bounds of open requests per caller; per address on routes without authentication. */
const turnBounds = { atOncePerNameMax: 4, waitingPerNameMax: 100, waitMsMax: 15_000 };

/** Bounds of answers that last. Requests for more of them fail at once. */
const openBounds = { atOncePerNameMax: 16, waitingPerNameMax: 0 };

const isRead = ({ req: { method } }: HttpContext): boolean => method === 'GET' || method === 'HEAD';

/**
 * Returns the name of the caller's queue. Changes, such as a revocation, have their own queue, so that they never wait
 * for unread answers.
 */
function lineOf(context: HttpContext, caller: Caller): string {
  return `${callerId(caller)} ${isRead(context) ? 'reads' : 'changes'}`;
}

function once(run: () => void): () => void {
  let isDone = false;
  return () => {
    if (!isDone) run();
    isDone = true;
  };
}

interface TurnTaking {
  /**
   * Waits for a place among the caller's open requests. The place is kept until the answer is read: an unread answer
   * takes memory, and producing it takes a share of the database.
   */
  readonly takeTurn: (context: HttpContext, name: string) => Promise<void>;
  /** Exchanges the request's place for a place among the answers that last. */
  readonly takeOpenTurn: (context: HttpContext, name: string) => Promise<void>;
}

function createTurnTaking(): TurnTaking {
  const [turns, open] = [new ConcurrencyLimit(turnBounds), new ConcurrencyLimit(openBounds)];
  /** Functions that free the place of a request; each may be called repeatedly. */
  const ends = new WeakMap<HttpContext, () => void>();
  const take = async (line: ConcurrencyLimit, context: HttpContext, name: string): Promise<void> => {
    const { outgoing } = context.env;
    const end = once(await line.take(name));
    if (!outgoing.closed) {
      outgoing.once('close', end);
      ends.set(context, end);
      return;
    }
    end();
    throw new AppError('request_timeout', { message: 'The connection was closed before the request was answered.' });
  };
  return {
    takeTurn: (context, name) => take(turns, context, name),
    async takeOpenTurn(context, name) {
      const endTurn = ends.get(context);
      await take(open, context, name);
      endTurn?.();
    },
  };
}

/**
 * Milliseconds for a slow change: a package of 10 MiB over a slow line, or a download with redirects, and its
 * processing.
 */
const slowMsMax = 120_000;

/** Names the organization in queries; `org` is an alias, which `knownQuery` replaces. */
const named = 'organization_id';

/** @see Guards.organizationOf */
function organizationOf(accounts: GuardParts['accounts']): Guards['organizationOf'] {
  return async (context, inBody) => {
    const inQuery = context.req.query(named);
    if (inBody !== undefined && inQuery !== undefined && inBody !== inQuery) {
      throw new ValidationError([{ field: named, message: 'must be the same in the body and in the query' }]);
    }
    const text = inBody ?? inQuery;
    const { organizationId } = context.get('caller');
    if (text === undefined) return organizationId;
    const asked = requireId('org', text);
    if (asked === organizationId) return asked;
    const mayAsk = context.get('extent') === 'any';
    if (mayAsk && (await accounts.readOrganization(asked)) !== null) return asked;
    throw notFound('org');
  };
}

export function createGuards(parts: GuardParts): Guards {
  const { authenticator, accounts, addressOf, showLimits, shares, limits, onceGuards } = parts;
  const { takeTurn, takeOpenTurn } = createTurnTaking();
  const organization = organizationOf(accounts);
  /** Time limits of the running changes. */
  const times = new WeakMap<HttpContext, AnswerTime>();
  /** Limits the time of every change, whatever its route. */
  const changeInTime = (context: HttpContext, next: Next): Promise<void> => {
    const change = { isCommitted: false };
    context.set('change', change);
    return answerInTime((time) => {
      times.set(context, time);
      return duringChange(change, next);
    });
  };
  const guard =
    (action: Action, least: 'own' | 'organization' = 'organization'): MiddlewareHandler<HttpEnv> =>
    async (context, next) => {
      const caller = knownCaller(context) ?? (await authenticator.authenticate(context.env.incoming));
      for (const [name, value] of Object.entries(await showLimits(caller))) context.header(name, value);
      const extent = requireExtent(caller, action, least);
      await takeTurn(context, lineOf(context, caller));
      context.set('caller', caller);
      context.set('extent', extent);
      await (isRead(context) ? next() : changeInTime(context, next));
    };
  const bodyOf = (reader: BodyReader): MiddlewareHandler<HttpEnv> => {
    const read = createReadBody({ limits, shares }, [reader]);
    return async (context, next) => {
      const caller: Caller | undefined = context.get('caller');
      if (caller === undefined) await takeTurn(context, addressOf(context.env.incoming));
      const time = times.get(context);
      if (time === undefined) return read(context, () => answerInTime(next));
      time.pause();
      return read(context, async () => {
        time.start();
        await next();
      });
    };
  };
  return {
    ...onceGuards,
    may: guard,
    async stayOpen(context, action) {
      await takeOpenTurn(context, callerId(context.get('caller')));
      return async () => {
        const caller = await authenticator.authenticate(context.env.incoming);
        requireExtent(caller, action, 'organization');
        context.set('caller', caller);
      };
    },
    organizationOf: organization,
    organizationOrAll: async (context) =>
      context.get('extent') === 'any' && context.req.query(named) === undefined ? null : organization(context),
    async slowly(context, next) {
      times.get(context)?.start(slowMsMax);
      await next();
    },
    async streamedBody(context, next) {
      times.get(context)?.pause();
      await next();
    },
    jsonBody: bodyOf(jsonBody),
    smallJsonBody: bodyOf(smallJsonBody),
  };
}
