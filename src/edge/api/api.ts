import type { MiddlewareHandler } from 'hono';
import type { Clock } from '#base/clock.ts';
import type { Signer } from '#base/config/config.ts';
import type { Log } from '#base/log.ts';
import type { Accounts, Letters } from '#core/accounts/accounts.ts';
import type { HoldReview } from '#core/admission/admission.ts';
import type { Alerts } from '#core/alerts/alerts.ts';
import type { AuditTrail } from '#core/audit/audit.ts';
import type { Batches } from '#core/batches/batches.ts';
import type { Catalog } from '#core/catalog/catalog.ts';
import type { Clusters } from '#core/clusters/clusters.ts';
import type { Exposures } from '#core/web-addresses/web-addresses.ts';
import type { Files } from '#core/files/files.ts';
import type { Imports } from '#core/imports/imports.ts';
import type { OperatorCommands, UnusedStorage } from '#core/fleet/fleet.ts';
import type { Keys, Members, Organizations, ServiceAccountSetup } from '#core/keys/keys.ts';
import type { History, QuarantineReview } from '#core/metering/metering.ts';
import type { Reconciler } from '#core/reconcile/reconcile.ts';
import type { Contents, Receipts } from '#core/stored-requests/stored-requests.ts';
import type { Runs } from '#core/runs/runs.ts';
import type { Stacks } from '#core/stacks/stacks.ts';
import type { ReadHeld, Wallet } from '#core/wallet/wallet.ts';
import { registerBatchRoutes, registerFileRoutes } from '#edge/api/batches/batches.ts';
import { type BillingRoutesParts, registerBillingRoutes } from '#edge/api/costs/costs.ts';
import { registerDocs, registerInferenceDocs } from '#edge/api/docs/docs.ts';
import { type EngineOperations, registerEngineRoutes, type RunningRequests } from '#edge/api/engines/engines.ts';
import {
  type OwnKeyRouteParts,
  registerImportRoute,
  registerKeyRoutes,
  registerOwnKeyRoute,
} from '#edge/api/keys/keys.ts';
import {
  type BudgetRoutesParts,
  registerBudgetRoutes,
  registerHoldRoutes,
  registerWalletBookingRoutes,
  registerWalletRoutes,
} from '#edge/api/money/money.ts';
import {
  absentOf,
  type OrganizationRateLimitParts,
  registerOrganizationAbsentRoutes,
  registerOrganizationKeyRoutes,
  registerOrganizationPeopleRoutes,
  registerOrganizationProjectRoutes,
  registerOrganizationRateLimitRoutes,
  registerOrganizationUsageRoutes,
  registerServiceAccountRoutes,
} from '#edge/api/openai/openai.ts';
import {
  registerAuditRoutes,
  registerInvitationRoutes,
  registerOrganizationReportRoute,
  registerOrganizationRoutes,
  registerProjectRoutes,
  registerResetLinkRoutes,
  registerUserIdentityRoutes,
  registerUserRoutes,
} from '#edge/api/organizations/organizations.ts';
import { registerClusterRoutes, registerRunRoutes, registerStackRoutes } from '#edge/api/platform/platform.ts';
import { type ApiApp, createApiApp, createGuards, createOnceGuards, createReadAgain } from '#edge/api/shared/shared.ts';
import {
  registerQuarantineRoutes,
  registerReconcileRoutes,
  registerStatementRoutes,
  registerUsageContentRoutes,
  registerUsageRoutes,
} from '#edge/api/usage/usage.ts';
import { registerWebhookDeliveryRoutes, registerWebhookRoutes } from '#edge/api/webhooks/webhooks.ts';
import {
  type Authenticator,
  type BodyLimits,
  type BodyShares,
  type ClientAddress,
  type HttpEnv,
  installFallbacks,
  requestId,
  routeGroups,
  type ShowLimits,
} from '#edge/http/http.ts';

export type { EngineOperations, OperatedEngine } from '#edge/api/engines/engines.ts';
export { absentOf } from '#edge/api/openai/openai.ts';

export interface ApiOptions {
  readonly authenticator: Authenticator;
  readonly showLimits: ShowLimits;
  /** Middleware that counts requests of the generic API. */
  readonly hourlyLimits: MiddlewareHandler<HttpEnv>;
  readonly keys: Keys;
  readonly accounts: Accounts;
  readonly organizations: Organizations;
  readonly members: Members;
  readonly serviceAccountSetup: ServiceAccountSetup;
  readonly letters: Letters;
  readonly alerts: Pick<Alerts, 'endpoints' | 'deliveries'>;
  readonly auditTrail: AuditTrail;
  readonly catalog: Pick<Catalog, 'find' | 'list' | 'priceVersion'>;
  readonly history: History;
  readonly quarantine: QuarantineReview;
  readonly holds: HoldReview;
  /** Signs statements; null if statements are not signed. */
  readonly signer: Signer | null;
  /** True if the gateway reads end users from a header. */
  readonly readsEndUsers: boolean;
  readonly contents: Contents;
  readonly receipts: Receipts;
  readonly files: Files;
  readonly batches: Batches;
  readonly wallet: Wallet;
  readonly budgets: BudgetRoutesParts['budgets'];
  readonly spentOf: BudgetRoutesParts['spentOf'];
  readonly imports: Imports;
  readonly rateLimits: OrganizationRateLimitParts['rateLimits'];
  readonly admission: OwnKeyRouteParts['admission'];
  /** Engines and the commands for operators. Without this option the routes do not exist. */
  readonly engines?: {
    readonly operations: EngineOperations;
    readonly commands: OperatorCommands;
    readonly storage: UnusedStorage;
    readonly requests: RunningRequests;
  };
  readonly billing: Pick<BillingRoutesParts, 'costs' | 'costBudgets' | 'directory' | 'catalog' | 'readReplicaGpus'>;
  /** Compares ledger, usage and engines. Without this option the route does not exist. */
  readonly reconciler?: Reconciler;
  readonly stacks: Stacks;
  readonly runs: Runs;
  readonly exposures: Exposures;
  /** Called after a change of web addresses. The promise resolves when every gateway uses the change. */
  readonly announceAddresses: () => Promise<void>;
  /** Returns the amount that running requests hold of an organization's balance. */
  readonly heldPicoUsd: ReadHeld;
  readonly clusters: Clusters;
  readonly clock: Clock;
  /** Limits on slow request bodies. */
  readonly limits: Omit<BodyLimits, 'bodyBytesMax'>;
  readonly shares: BodyShares;
  readonly addressOf: ClientAddress;
  readonly log: Log;
}

/** Creates Headgate's own JSON APIs, with their OpenAPI document and a page to try them. Mount the app at the root. */
export function createApi(options: ApiOptions): ApiApp {
  const app = createApiApp();
  const onceGuards = createOnceGuards(options.receipts, createReadAgain(app));
  const parts = { ...options, guards: createGuards({ ...options, onceGuards }) };
  app.use(requestId);
  for (const { prefix, hourlyLimit } of routeGroups) if (hourlyLimit) app.use(`${prefix}/*`, options.hourlyLimits);
  installFallbacks(app, options.log, absentOf);
  registerInferenceDocs(app);
  registerFileRoutes(app, parts);
  registerBatchRoutes(app, parts);
  registerKeyRoutes(app, parts);
  registerOwnKeyRoute(app, parts);
  registerImportRoute(app, parts);
  registerProjectRoutes(app, parts);
  registerUserRoutes(app, parts);
  registerResetLinkRoutes(app, parts);
  registerUserIdentityRoutes(app, parts);
  registerInvitationRoutes(app, parts);
  registerOrganizationRoutes(app, parts);
  registerOrganizationReportRoute(app, parts);
  registerUsageRoutes(app, parts);
  registerUsageContentRoutes(app, parts);
  registerOrganizationUsageRoutes(app, parts);
  registerOrganizationKeyRoutes(app, parts);
  registerOrganizationProjectRoutes(app, parts);
  registerOrganizationRateLimitRoutes(app, parts);
  registerServiceAccountRoutes(app, parts);
  registerOrganizationPeopleRoutes(app, parts);
  registerOrganizationAbsentRoutes(app, parts);
  registerWalletRoutes(app, parts);
  registerWalletBookingRoutes(app, parts);
  registerBudgetRoutes(app, parts);
  registerStatementRoutes(app, parts);
  registerAuditRoutes(app, parts);
  registerWebhookRoutes(app, parts);
  registerWebhookDeliveryRoutes(app, parts);
  registerQuarantineRoutes(app, parts);
  registerClusterRoutes(app, parts);
  registerStackRoutes(app, parts);
  registerRunRoutes(app, parts);
  registerBillingRoutes(app, { ...parts, ...options.billing });
  registerHoldRoutes(app, parts);
  if (options.engines !== undefined) registerEngineRoutes(app, { ...parts, ...options.engines });
  if (options.reconciler !== undefined) registerReconcileRoutes(app, { ...parts, reconciler: options.reconciler });
  registerDocs(app);
  return app;
}
