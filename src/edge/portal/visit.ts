import type { Context } from 'hono';
import { type Action, type Extent, extentOf } from '#core/accounts/accounts.ts';
import { formTokenOf, type SignedIn } from '#core/sessions/sessions.ts';
import type { AskApi, HttpContext, HttpEnv } from '#edge/http/http.ts';

/** Why the API said no, as pages show it. */
export interface Refusal {
  readonly status: number;
  readonly message: string;
  /** By the field that is at fault; empty where none is. */
  readonly problems: ReadonlyMap<string, string>;
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

/** Somebody who is signed in and asks for a page. */
export interface Visit {
  readonly context: HttpContext;
  readonly signedIn: SignedIn;
  /** Stands in every form as `form_token`. */
  readonly formToken: string;
  /** `http://host:port`, as the visitor's browser has it. */
  readonly origin: string;
  /** Whether the visitor may do this with all of the organization. */
  readonly may: (action: Action) => boolean;
  /** Reads from the JSON API as the visitor. @throws RefusedError */
  readonly get: <T>(path: string) => Promise<T>;
  /** Changes something by the JSON API as the visitor. */
  readonly send: <T>(method: 'POST' | 'PATCH' | 'DELETE', path: string, body?: object) => Promise<Outcome<T>>;
}

interface ErrorBody {
  readonly error?: {
    readonly message?: string;
    readonly param?: string | null;
    readonly details?: readonly { readonly field: string; readonly message: string }[];
  };
}

/** Both shapes of errors: OpenAI's names the first field in `param` and all of them in its message. */
function refusalOf(status: number, body: unknown): Refusal {
  const { message = 'Something went wrong on our side.', param = null, details } = (body as ErrorBody).error ?? {};
  const problems =
    details?.map(({ field, message: text }): [string, string] => [field, text]) ?? fieldsOf(message, param);
  return { status, message, problems: new Map(problems) };
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
  readonly context: HttpContext;
  readonly signedIn: SignedIn;
  readonly token: string;
  readonly origin: string;
}

export function createVisit({ ask, context, signedIn, token, origin }: VisitParts): Visit {
  const { principal } = signedIn;
  const call = async <T>(method: string, path: string, body?: object): Promise<Outcome<T>> => {
    const { remoteAddress } = context.env.incoming.socket;
    const answer = await ask(principal, { method, path, body, requestId: context.get('requestId'), remoteAddress });
    if (answer.status < 400) return { ok: true, body: answer.body as T, isNew: answer.status === 201 };
    return { ok: false, refusal: refusalOf(answer.status, answer.body) };
  };
  return {
    context,
    signedIn,
    formToken: formTokenOf(token),
    origin,
    may(action) {
      const extent: Extent = extentOf(principal, action);
      return extent === 'organization' || extent === 'any';
    },
    async get<T>(path: string) {
      const outcome = await call<T>('GET', path);
      if (outcome.ok) return outcome.body;
      throw new RefusedError(outcome.refusal);
    },
    send: call,
  };
}

/** What a page is made for. */
export type PageHandler = (visit: Visit) => Response | Promise<Response>;

/** The text of a query parameter; empty where it is absent. */
export function queryOf({ req }: Context<HttpEnv>, name: string): string {
  return req.query(name) ?? '';
}

/** A path with those of the parameters that say something. */
export function pathWith(path: string, query: Readonly<Record<string, string | number | null | undefined>>): string {
  const said = Object.entries(query).flatMap(([name, value]): [string, string][] =>
    value === null || value === undefined || value === '' ? [] : [[name, String(value)]],
  );
  return said.length === 0 ? path : `${path}?${new URLSearchParams(said).toString()}`;
}
