import type { MiddlewareHandler, Next } from 'hono';
import { duringChange } from '#base/commits.ts';
import { AppError, needsPlatformAdmin } from '#base/errors.ts';
import { Turns } from '#base/turns.ts';
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
import { type AnswerTime, answerInTime } from './answer-in-time.ts';

/** What stands before a route. `may` puts `caller` into the context. */
export interface Guards extends OnceGuards {
  /**
   * Who may do this, by the table of roles: of the whole organization, or, where `least` says so, of what is his own.
   * Puts `extent` into the context too.
   */
  readonly may: (action: Action, least?: 'own' | 'organization') => MiddlewareHandler<HttpEnv>;
  /**
   * For an answer that lasts as long as its reader stays, behind `may`: it holds up no other read of the caller, and of
   * such answers each caller has a few.
   * @returns asks again who calls, and puts `caller` into the context anew: keys are revoked and people leave meanwhile.
   * Throws what `may` does
   * @throws TooManyWaitError
   */
  readonly stayOpen: (context: HttpContext, action: Action) => Promise<() => Promise<void>>;
  /** For changes that fetch or read much and are no less well for it; behind `may`. */
  readonly slowly: MiddlewareHandler<HttpEnv>;
  /** For bodies that are worked on while they come: a client has its time for them, and an answer comes after. */
  readonly streamedBody: MiddlewareHandler<HttpEnv>;
  /** Reads and checks the body, for routes that have one; after the key, so that who may not call learns nothing. */
  readonly jsonBody: MiddlewareHandler<HttpEnv>;
  /** The same for users and projects, whose bodies are small. */
  readonly smallJsonBody: MiddlewareHandler<HttpEnv>;
  /**
   * The organization that a request is about: the one that it names, else the caller's own. To be called behind `may`.
   * @param named as outsiders name it in the body; `organization_id` of the query says the same or is absent
   * @throws ValidationError where body and query name different ones
   * @throws AppError not_found for what is not there, and for what the caller may not ask for
   */
  readonly organizationOf: (context: HttpContext, named?: string) => Promise<string>;
}

/** @throws AppError insufficient_scope */
function requireExtent(caller: Caller, action: Action, least: 'own' | 'organization'): Extent {
  const extent = extentOf(caller, action);
  if (extent !== 'none' && (extent !== 'own' || least === 'own')) return extent;
  if (!isOfPlatform(action)) throw new AppError('insufficient_scope');
  throw new AppError('insufficient_scope', { message: needsPlatformAdmin });
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
  readonly accounts: Pick<Accounts, 'readOrganization'>;
  readonly addressOf: ClientAddress;
  readonly showLimits: ShowLimits;
  readonly shares: BodyShares;
  readonly limits: Omit<BodyLimits, 'bodyBytesMax'>;
  readonly onceGuards: OnceGuards;
}

/** Requests of one caller, or of one address where nobody need say who calls. */
const turnBounds = { atOnceMax: 4, waitingMax: 100, waitMsMax: 15_000 };

/** Answers that last; who wants more of them is told so at once. */
const openBounds = { atOnceMax: 16, waitingMax: 0 };

const isRead = ({ req: { method } }: HttpContext): boolean => method === 'GET' || method === 'HEAD';

/** What changes something, such as a revocation, never waits for answers that nobody reads. */
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
  /** A turn lasts until the answer is read: an unread one is memory, and making it takes a share of the database. */
  readonly takeTurn: (context: HttpContext, name: string) => Promise<void>;
  /** In the place of the turn that the request has: one of those for answers that last. */
  readonly takeOpenTurn: (context: HttpContext, name: string) => Promise<void>;
}

function createTurnTaking(): TurnTaking {
  const [turns, open] = [new Turns(turnBounds), new Turns(openBounds)];
  /** What ends the turn of a request, however often it is called. */
  const ends = new WeakMap<HttpContext, () => void>();
  const take = async (line: Turns, context: HttpContext, name: string): Promise<void> => {
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

/** A package of 10 MiB by a slow line, or a download with its redirects, and reading all of it. */
const slowMsMax = 120_000;

/** @see Guards.organizationOf */
function organizationOf(accounts: GuardParts['accounts']): Guards['organizationOf'] {
  return async (context, inBody) => {
    const inQuery = context.req.query('organization_id');
    if (inBody !== undefined && inQuery !== undefined && inBody !== inQuery) {
      throw new ValidationError([
        { field: 'organization_id', message: 'is another one in the body than in the query' },
      ]);
    }
    const named = inBody ?? inQuery;
    const { organizationId } = context.get('caller');
    if (named === undefined) return organizationId;
    const asked = requireId('org', named);
    if (asked === organizationId) return asked;
    const mayAsk = context.get('extent') === 'any';
    if (mayAsk && (await accounts.readOrganization(asked)) !== null) return asked;
    throw notFound('org');
  };
}

export function createGuards(parts: GuardParts): Guards {
  const { authenticator, accounts, addressOf, showLimits, shares, limits, onceGuards } = parts;
  const { takeTurn, takeOpenTurn } = createTurnTaking();
  /** Of the changes that run. */
  const times = new WeakMap<HttpContext, AnswerTime>();
  /** Every change is bounded, that of a route which nobody thought of too. */
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
    organizationOf: organizationOf(accounts),
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
