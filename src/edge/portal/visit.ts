import type { Context } from 'hono';
import {
  type Action,
  type Extent,
  extentOf,
  type OrganizationRole,
  type OwnOrganization,
  rolesGivenBy,
} from '#core/accounts/accounts.ts';
import { formTokenOf, type SignedIn } from '#core/sessions/sessions.ts';
import { formatId } from '#base/id.ts';
import type { AskApi, Caller, HttpContext, HttpEnv, OpenApi } from '#edge/http/http.ts';
import { asksByItself } from './place.ts';

/** Why the API said no, as pages show it. */
export interface Refusal {
  readonly status: number;
  readonly message: string;
  /** By the field that is at fault; empty where none is. */
  readonly problems: ReadonlyMap<string, string>;
  /** Retry-After in seconds, where waiting helps. */
  readonly retryAfter?: number | null;
}

/** A page that cannot be made because the API refuses what it shows. */
export class RefusedError extends Error {
  readonly refusal: Refusal;

  constructor(refusal: Refusal) {
    super(refusal.message);
    this.name = 'RefusedError';
    this.refusal = refusal;
  }
}

export type Outcome<T> =
  /** `isNew`: something was made (201). */
  { readonly ok: true; readonly body: T; readonly isNew: boolean } | { readonly ok: false; readonly refusal: Refusal };

/** Another organization that a platform administrator looks at; its id as it is shown. */
export interface Viewed {
  readonly id: string;
  readonly name: string;
}

/** Somebody who is signed in and asks for a page. */
export interface Visit {
  readonly context: HttpContext;
  readonly signedIn: SignedIn;
  /** Null while it is the visitor's own organization. */
  readonly viewed: Viewed | null;
  /** The organization that pages are about, as it is shown: `viewed`, else the visitor's own. */
  readonly organizationId: string;
  readonly ownOrganizationId: string;
  /** All that the visitor could work in. */
  readonly organizations: readonly OwnOrganization[];
  /** Stands in every form as `form_token`. */
  readonly formToken: string;
  /** `http://host:port`, as the visitor's browser has it. */
  readonly origin: string;
  /** The word of the change that led here, once; empty where no form of this session did. */
  readonly takeNotice: () => string;
  /** Whether the visitor may do this with all of the organization. */
  readonly may: (action: Action) => boolean;
  /** Whether the visitor may do this at all, be it with what is his own alone. */
  readonly mayOwn: (action: Action) => boolean;
  /** The roles that the visitor may give. */
  readonly gives: readonly OrganizationRole[];
  /** Reads from the JSON API as the visitor. @throws RefusedError */
  readonly get: <T>(path: string) => Promise<T>;
  /** The same where there may be nothing: null. @throws RefusedError */
  readonly find: <T>(path: string) => Promise<T | null>;
  /** Asks the JSON API as the visitor; for a change, and where the page goes on without the answer. */
  readonly send: <T>(
    method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE',
    path: string,
    body?: object,
    headers?: Readonly<Record<string, string>>,
  ) => Promise<Outcome<T>>;
  /** Reads what is no JSON, or goes on, as the visitor; it ends with the session. @throws RefusedError */
  readonly open: (path: string, headers?: Readonly<Record<string, string>>) => Promise<Response>;
}

interface ErrorBody {
  readonly error?: {
    readonly message?: string;
    readonly param?: string | null;
    readonly details?: readonly { readonly field: string; readonly message: string }[];
  };
}

/** Both shapes of errors: OpenAI's names the first field in `param` and all of them in its message. */
export function refusalOf({ status, headers }: Pick<Response, 'status' | 'headers'>, body: unknown): Refusal {
  const { message = 'Something went wrong on our side.', param = null, details } = (body as ErrorBody).error ?? {};
  const problems =
    details?.map(({ field, message: text }): [string, string] => [field, text]) ?? fieldsOf(message, param);
  return { status, message, problems: new Map(problems), retryAfter: retryAfterOf(headers) };
}

/** Whole seconds; null where the answer says none. */
export function retryAfterOf(headers: Headers): number | null {
  const said = headers.get('retry-after') ?? '';
  return /^\d{1,6}$/.test(said) ? Number(said) : null;
}

function fieldsOf(message: string, param: string | null): [string, string][] {
  if (param === null) return [];
  if (!message.startsWith(`${param}: `)) return [[param, message]];
  return message.split('; ').flatMap((part): [string, string][] => {
    const at = part.indexOf(': ');
    return at === -1 ? [] : [[part.slice(0, at), part.slice(at + 2)]];
  });
}

export interface VisitParts {
  readonly ask: AskApi;
  readonly openApi: OpenApi;
  /** Who is signed in by this session now; throws AppError unauthorized where nobody is any more. */
  readonly stillSignedIn: () => Promise<Caller>;
  readonly context: HttpContext;
  readonly signedIn: SignedIn;
  readonly organizations: readonly OwnOrganization[];
  readonly token: string;
  readonly origin: string;
  readonly viewed: Viewed | null;
  readonly takeNotice: () => string;
  /** A path of the API, for the organization that is looked at. */
  readonly pathFor: (path: string) => string;
}

export function createVisit(parts: VisitParts): Visit {
  const { ask, openApi, stillSignedIn, context, signedIn, organizations, token, origin, viewed, takeNotice, pathFor } =
    parts;
  const { principal } = signedIn;
  const { remoteAddress } = context.env.incoming.socket;
  const from = { requestId: context.get('requestId'), remoteAddress, isByItself: asksByItself(context) };
  const call = async <T>(
    method: string,
    path: string,
    body?: object,
    headers?: Readonly<Record<string, string>>,
  ): Promise<Outcome<T>> => {
    const answer = await ask(principal, { method, path: pathFor(path), body, headers, ...from });
    if (answer.status < 400) return { ok: true, body: answer.body as T, isNew: answer.status === 201 };
    return { ok: false, refusal: refusalOf(answer, answer.body) };
  };
  return {
    context,
    signedIn,
    viewed,
    organizationId: viewed?.id ?? formatId('org', principal.organizationId),
    ownOrganizationId: formatId('org', principal.organizationId),
    organizations,
    formToken: formTokenOf(token),
    origin,
    takeNotice,
    gives: rolesGivenBy(principal),
    may(action) {
      const extent: Extent = extentOf(principal, action);
      return extent === 'organization' || extent === 'any';
    },
    mayOwn: (action) => extentOf(principal, action) !== 'none',
    async find<T>(path: string) {
      const outcome = await call<T>('GET', path);
      if (outcome.ok) return outcome.body;
      if (outcome.refusal.status === 404) return null;
      throw new RefusedError(outcome.refusal);
    },
    async get<T>(path: string) {
      const outcome = await call<T>('GET', path);
      if (outcome.ok) return outcome.body;
      throw new RefusedError(outcome.refusal);
    },
    send: call,
    async open(path, headers) {
      const answer = await openApi(stillSignedIn, { method: 'GET', path: pathFor(path), headers, ...from });
      if (answer.status < 400) return answer;
      throw new RefusedError(refusalOf(answer, await answer.json()));
    },
  };
}

/** What a page is made for. */
export type PageHandler = (visit: Visit) => Response | Promise<Response>;

/** The text of a query parameter; empty where it is absent. */
export function queryOf({ req }: Context<HttpEnv>, name: string): string {
  return req.query(name) ?? '';
}

/** What a page says of the change that led to it; undefined where none did, and for a word that it does not know. */
export function noticeOf<T>(visit: Pick<Visit, 'takeNotice'>, notices: Readonly<Record<string, T>>): T | undefined {
  const word = visit.takeNotice();
  return Object.hasOwn(notices, word) ? notices[word] : undefined;
}

/** A path with those of the parameters that say something. */
export function pathWith(path: string, query: Readonly<Record<string, string | number | null | undefined>>): string {
  const said = Object.entries(query).flatMap(([name, value]): [string, string][] =>
    value === null || value === undefined || value === '' ? [] : [[name, String(value)]],
  );
  return said.length === 0 ? path : `${path}?${new URLSearchParams(said).toString()}`;
}
