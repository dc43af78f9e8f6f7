import type { Oidc } from '#base/oidc.ts';
import type { Accounts, Letters, NewPeople } from '#core/accounts/accounts.ts';
import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import type { LimitsView } from '#core/limits/limits.ts';
import type { Sessions, SignedIn } from '#core/sessions/sessions.ts';
import type { AskApi, BodyLimits, BodyShares, ClientAddress, HttpEnv, IsSecure, OpenApi } from '#edge/http/http.ts';
import type { KeyAnswer, ModelAnswer, PriceAnswer } from './answers.ts';
import type { Form, UploadForm } from './form.ts';
import type { Visit } from './visit.ts';

/** A request to a chat model that came from a page. */
export interface PageChat {
  readonly principal: SignedIn['principal'];
  readonly requestId: string;
  /** Its body is that of `POST /v1/chat/completions`, unread; the answer goes out here. */
  readonly exchange: HttpEnv['Bindings'];
  /** Ends it early, with an AppError as its reason. */
  readonly stop: AbortSignal;
}

/** Somebody who knows people. */
export interface ProviderParts {
  readonly oidc: Oidc;
  /** As the button says it. */
  readonly name: string;
  readonly newPeople: NewPeople | null;
  /** Where browsers come back to; an attempt that began elsewhere would come back without its cookie. */
  readonly publicUrl: string;
}

/** What the pages are made from. */
export interface PortalParts {
  readonly sessions: Sessions;
  readonly accounts: Pick<Accounts, 'users'>;
  readonly letters: Letters;
  /** Null without one. */
  readonly provider: ProviderParts | null;
  /** The JSON API: whatever pages show and do, they ask of it, as who is signed in. */
  readonly ask: AskApi;
  /** The same for files, and for answers that last. */
  readonly open: OpenApi;
  /** The models that an organization may use, as `GET /v1/models` lists them. */
  readonly models: (organizationId: string) => Promise<readonly ModelAnswer[]>;
  /** The models that the key of who is signed in may use, which the playground asks with; null: all of the organization. */
  readonly heldModels: (principal: SignedIn['principal']) => Promise<readonly string[] | null>;
  /** As `GET /v1/pricing` lists them. */
  readonly prices: () => readonly PriceAnswer[];
  /** What is left of the limits of a key, of which the API has told; null while nobody knows. */
  readonly limitsLeft: (organizationId: string, key: KeyAnswer) => Promise<LimitsView | null>;
  /**
   * Asks a model as who is signed in, through the path that every request of a key takes.
   * @throws AppError where there is no key for it and none can be made; nothing has been answered then
   */
  readonly chat: (chat: PageChat) => Promise<void>;
  /** Active keys of an organization that says nothing else. */
  readonly maxActiveKeys: number;
  readonly isSecure: IsSecure;
  /** What guesses are counted by. */
  readonly addressOf: ClientAddress;
  /** What sessions show of where somebody signed in. */
  readonly wholeAddressOf: ClientAddress;
  /** How slowly a form may come. */
  readonly limits: Omit<BodyLimits, 'bodyBytesMax'>;
  readonly shares: BodyShares;
  readonly clock: Clock;
  readonly log: Log;
}

type Param = (name: string) => string;

/** What is shown at a path. */
export type Page = (visit: Visit, parts: PortalParts, param: Param) => Promise<Response>;
/** What a form sent to a path does. */
export type Change = (visit: Visit, parts: PortalParts, form: Form, param: Param) => Promise<Response>;
/** The same for a form with a file. */
export type Upload = (visit: Visit, form: UploadForm) => Promise<Response>;
