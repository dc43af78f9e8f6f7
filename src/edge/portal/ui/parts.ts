import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import type { Oidc } from '#base/oidc.ts';
import type { Accounts, Letters, NewPeople } from '#core/accounts/accounts.ts';
import type { LimitsView } from '#core/limits/limits.ts';
import type { Sessions, SignedIn } from '#core/sessions/sessions.ts';
import type { KeyAnswer } from '#edge/contract/keys.ts';
import type { ModelAnswer, PriceAnswer } from '#edge/contract/models.ts';
import type { AskApi, BodyLimits, BodyShares, ClientAddress, HttpEnv, IsSecure, OpenApi } from '#edge/http/http.ts';
import type { Form, UploadForm } from './form.ts';
import type { Visit } from './page-request.ts';

/** A request to a model that a page sends. */
export interface PageCall {
  readonly path: `/v1/${'chat/completions' | 'completions' | 'responses' | 'messages' | 'embeddings' | 'rerank'}`;
  readonly principal: SignedIn['principal'];
  readonly requestId: string;
  /** The request has the unread body of a `POST` to the path; the answer is written to the response. */
  readonly exchange: HttpEnv['Bindings'];
  /** Ends the request early, with an AppError as its reason. */
  readonly stop: AbortSignal;
}

/** A sign-in provider. */
export interface ProviderParts {
  readonly oidc: Oidc;
  /** The provider's name on the sign-in button. */
  readonly name: string;
  readonly newPeople: NewPeople | null;
  /** URL to which browsers return. An attempt that started at another origin would return without its cookie. */
  readonly publicUrl: string;
}

/** Dependencies of the pages. */
export interface PortalParts {
  readonly sessions: Sessions;
  readonly accounts: Pick<Accounts, 'users'>;
  readonly letters: Letters;
  /** Null if no provider is configured. */
  readonly provider: ProviderParts | null;
  /** The JSON API. Pages read and change everything through it, with the rights of the signed-in user. */
  readonly ask: AskApi;
  /** The JSON API, for files and for answers that stream. */
  readonly open: OpenApi;
  /** Models that an organization may use, as `GET /v1/models` lists them. */
  readonly models: (organizationId: string) => Promise<readonly ModelAnswer[]>;
  /** Models that the user's playground key may use; null if it may use all models of the organization. */
  readonly heldModels: (principal: SignedIn['principal']) => Promise<readonly string[] | null>;
  /** Prices, as `GET /v1/pricing` lists them. */
  readonly prices: () => readonly PriceAnswer[];
  /** Reads the remaining limits of a key; null while unknown. The key must come from the API. */
  readonly remainingLimits: (organizationId: string, key: KeyAnswer) => Promise<LimitsView | null>;
  /**
   * Sends a request to a model as the signed-in user, through the same path as every request with a key.
   * @throws AppError if there is no key for it and none can be created; no answer has been sent then
   */
  readonly callModel: (call: PageCall) => Promise<void>;
  /** Returns the problems that an operator must act on, in one sentence each: old backups, a full disk. */
  readonly platformProblems: () => readonly string[];
  /** Milliseconds that a response waits for its record; then the client gets an error, and the charge follows. */
  readonly settleTimeoutMs: number;
  /** The limit of active keys for organizations without their own limit. */
  readonly maxActiveKeys: number;
  readonly isSecure: IsSecure;
  /** Returns the client address by which sign-in attempts are counted. */
  readonly addressOf: ClientAddress;
  /** Returns the client address that the list of sessions shows. */
  readonly wholeAddressOf: ClientAddress;
  /** Limits for how slowly a form may arrive. */
  readonly limits: Omit<BodyLimits, 'bodyBytesMax'>;
  readonly shares: BodyShares;
  readonly clock: Clock;
  readonly log: Log;
}

type Param = (name: string) => string;

/** Renders the page at a path. */
export type Page = (visit: Visit, parts: PortalParts, param: Param) => Promise<Response>;
/** Handles a form that was sent to a path. */
export type Change = (visit: Visit, parts: PortalParts, form: Form, param: Param) => Promise<Response>;
/** Handles a form with a file. */
export type Upload = (visit: Visit, form: UploadForm) => Promise<Response>;
