import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import type { Accounts } from '#core/accounts/accounts.ts';
import type { Keys } from '#core/keys/keys.ts';
import { createAuthenticator, installFallbacks, requestId } from '#edge/http/http.ts';
import { type ApiApp, createApiApp } from './app.ts';
import { createGuards } from './auth.ts';

export interface ApiOptions {
  readonly db: Db;
  readonly keys: Keys;
  readonly accounts: Accounts;
  readonly clock: Clock;
  readonly log: Log;
}

/** The JSON APIs of our own, with their document and a page to try them. Mounted at the root. */
export function createApi(options: ApiOptions): ApiApp {
  const { log } = options;
  const app = createApiApp();
  const guards = createGuards(createAuthenticator(options));
  void guards;
  app.use(requestId);
  installFallbacks(app, log);
  return app;
}
