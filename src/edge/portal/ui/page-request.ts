import type { Context } from 'hono';
import { formatId } from '#base/id.ts';
import { type Action, type Extent, extentOf, type OwnOrganization, rolesGivenBy } from '#core/accounts/accounts.ts';
import { formTokenOf, type SignedIn } from '#core/sessions/sessions.ts';
import type { AnyError } from '#edge/contract/errors.ts';
import type { OrganizationRole } from '#edge/contract/users.ts';
import type { AskApi, Caller, HttpContext, HttpEnv, OpenApi } from '#edge/http/http.ts';
import { asksByItself } from './page-origin.ts';

/** A rejection by the API, as pages show it. */
export interface Refusal {
  readonly status: number;
  readonly message: string;
  /** Problems by field; empty if no field is wrong. */
  readonly problems: ReadonlyMap<string, string>;
  /** Retry-After in seconds, if waiting helps. */
  readonly retryAfter?: number | null;
}

/** Thrown if a page cannot be shown because the API rejects its requests. */
export class RefusedError extends Error {
  readonly refusal: Refusal;

  constructor(refusal: Refusal) {
    super(refusal.message);
    this.name = 'RefusedError';
    this.refusal = refusal;
  }
}

export type Outcome<T> =
  /** `isNew`: the API created something (201). */
  { readonly ok: true; readonly body: T; readonly isNew: boolean } | { readonly ok: false; readonly refusal: Refusal };

/** Another organization that a platform administrator looks at, with its public id. */
export interface Viewed {
  readonly id: string;
  readonly name: string;
}

/** A request for a page by a signed-in user. */
export interface Visit {
  readonly context: HttpContext;
  readonly signedIn: SignedIn;
  /** Null while the visitor's own organization is viewed. */
  readonly viewed: Viewed | null;
  /** Public id of the organization that pages show: `viewed`, or the visitor's own. */
  readonly organizationId: string;
  readonly ownOrganizationId: string;
  /** All organizations that the visitor can work in. */
  readonly organizations: readonly OwnOrganization[];
  /** Value of `form_token` in every form. */
  readonly formToken: string;
  /** `http://host:port` in the visitor's browser. */
  readonly origin: string;
  /** Returns the word of the change that led here, once; empty if no form of this session did. */
  readonly takeNotice: () => string;
  /** True if the visitor may do the action for the whole organization. */
  readonly may: (action: Action) => boolean;
  /** True if the visitor may do the action at all, if only with their own data. */
  readonly mayOwn: (action: Action) => boolean;
  /** Roles that the visitor may give. */
  readonly gives: readonly OrganizationRole[];
  /** Reads from the JSON API as the visitor. @throws RefusedError */
  readonly get: <T>(path: string) => Promise<T>;
  /** Reads from the JSON API as the visitor. Returns null for 404. @throws RefusedError */
  readonly find: <T>(path: string) => Promise<T | null>;
  /** Calls the JSON API as the visitor, for changes, and for pages that go on without the answer. */
  readonly send: <T>(
    method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE',
    path: string,
    body?: object,
    headers?: Readonly<Record<string, string>>,
  ) => Promise<Outcome<T>>;
  /** Reads a file or a stream as the visitor. The answer ends with the session. @throws RefusedError */
  readonly open: (path: string, headers?: Readonly<Record<string, string>>) => Promise<Response>;
}

/** Reads both error formats. OpenAI's format has the first field in `param`, and all fields in the message. */
export function refusalOf({ status, headers }: Pick<Response, 'status' | 'headers'>, body: unknown): Refusal {
  const error: Partial<AnyError['error']> = (body as Partial<AnyError>).error ?? {};
  const { message = 'The gateway returned an error without a message.', param = null, details } = error;
  const problems =
    details?.map(({ field, message: text }): [string, string] => [field, text]) ?? fieldsOf(message, param);
  return { status, message, problems: new Map(problems), retryAfter: retryAfterOf(headers) };
}

/** Returns Retry-After in whole seconds; null if the answer has none. */
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
  /** Returns the user who is signed in by this session now; throws AppError unauthorized if nobody is. */
  readonly stillSignedIn: () => Promise<Caller>;
  readonly context: HttpContext;
  readonly signedIn: SignedIn;
  readonly organizations: readonly OwnOrganization[];
  readonly token: string;
  readonly origin: string;
  readonly viewed: Viewed | null;
  readonly takeNotice: () => string;
  /** Adds the viewed organization to a path of the API. */
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

/** Renders a page for a visit. */
export type PageHandler = (visit: Visit) => Response | Promise<Response>;

/** Returns a query parameter; empty if absent. */
export function queryOf({ req }: Context<HttpEnv>, name: string): string {
  return req.query(name) ?? '';
}

/** Returns the notice of the change that led to a page; undefined if there is none, or for an unknown word. */
export function noticeOf<T>(visit: Pick<Visit, 'takeNotice'>, notices: Readonly<Record<string, T>>): T | undefined {
  const word = visit.takeNotice();
  return Object.hasOwn(notices, word) ? notices[word] : undefined;
}

/** Builds a path with the query parameters that have a value. */
export function pathWith(path: string, query: Readonly<Record<string, string | number | null | undefined>>): string {
  const said = Object.entries(query).flatMap(([name, value]): [string, string][] =>
    value === null || value === undefined || value === '' ? [] : [[name, String(value)]],
  );
  return said.length === 0 ? path : `${path}?${new URLSearchParams(said).toString()}`;
}
