import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import type { Admission, HardBudget, PromptOverheads } from '#core/admission/admission.ts';
import type { Catalog } from '#core/catalog/catalog.ts';
import type { EngineRequests } from '#core/fleet/fleet.ts';
import type { TokenWatermarks } from '#core/gateways/gateways.ts';
import type { Metering } from '#core/metering/metering.ts';
import type { StoredResponses } from '#core/responses/responses.ts';
import type { CacheSalts, Routing } from '#core/routing/routing.ts';
import type { BodyShares, InferenceAuthenticator } from '#edge/http/http.ts';
import type { AnswerMemoryBudget } from '#edge/inference/answer/answer.ts';
import type { RequestObserver, Running } from '#edge/inference/call/call.ts';
import type { CountedUsers } from '#edge/inference/end-user.ts';
import type { Receiver } from '#edge/inference/receive/receive.ts';
import type { ReuseParts } from '#edge/inference/reuse/reuse.ts';
import type { RelayParts } from './engine-relay.ts';

export interface PathParts extends RelayParts, ReuseParts {
  readonly authenticator: InferenceAuthenticator;
  readonly admission: Admission;
  readonly overheads: PromptOverheads;
  /** Engines whose counts were reported as faulty, each with the fault. */
  readonly countFaults: Set<string>;
  readonly budgets: CountedUsers & {
    /** Called when a hard budget rejected a request. */
    refused(budget: HardBudget): void;
  };
  readonly catalog: Catalog;
  readonly routing: Routing;
  readonly cacheSalts: CacheSalts;
  readonly metering: Metering;
  readonly engineRequests: EngineRequests;
  readonly tokenWatermarks: TokenWatermarks;
  readonly running: Running;
  readonly receiver: Receiver;
  readonly shares: BodyShares;
  readonly answerMemory: AnswerMemoryBudget;
  readonly observer: RequestObserver;
  readonly clock: Clock;
  readonly log: Log;
  readonly storedResponses: StoredResponses;
  readonly limits: { readonly inFlightMax: number; readonly choicesMax: number; readonly bodyBytesMax: number };
  /** Header, in lower case, with the end user of keys that say so; null without one. */
  readonly endUserHeader: string | null;
  readonly settleTimeoutMs: number;
}
