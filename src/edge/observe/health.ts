import { Hono } from 'hono';
import { type HttpEnv, requestId } from '#edge/http/http.ts';

/** Where a gateway is in its life. */
export type Stage = 'starting' | 'serving' | 'draining';

export interface Health {
  /** Sets the stage; it begins as `starting`. */
  enter(stage: Stage): void;
  readonly stage: Stage;
  /** Names of what keeps the gateway from taking traffic, without any detail of the machine; empty when it may. */
  notReady(): readonly string[];
  /** Names of what an operator must see to, while the gateway may take traffic or not. */
  warnings(): readonly string[];
}

/** A part that must work for requests to be served. */
export interface HealthPart {
  readonly name: 'database' | 'redis' | 'fleet';
  readonly isReady: () => boolean;
}

export const healthPaths: readonly string[] = ['/healthz', '/readyz'];

/** What is wrong although the part may be ready. */
export interface HealthWarning {
  readonly name: 'database_older';
  readonly isRaised: () => boolean;
}

export function createHealth(parts: readonly HealthPart[], warnings: readonly HealthWarning[]): Health {
  let stage: Stage = 'starting';
  return {
    enter(next) {
      stage = next;
    },
    get stage() {
      return stage;
    },
    notReady() {
      const names = parts.filter(({ isReady }) => !isReady()).map(({ name }) => name);
      return stage === 'serving' ? names : [stage, ...names];
    },
    warnings: () => warnings.filter(({ isRaised }) => isRaised()).map(({ name }) => name),
  };
}

/** The answers of `/healthz`, which depends on nothing else, and of `/readyz`, which names what is missing. */
export function healthAnswer(health: Health, path: string): { status: 200 | 503; body: object } {
  if (path === '/healthz') return { status: 200, body: { status: 'ok' } };
  const [missing, warnings] = [health.notReady(), health.warnings()];
  const warned = warnings.length > 0 && { warnings };
  if (missing.length === 0) return { status: 200, body: { status: 'ready', ...warned } };
  return { status: 503, body: { status: 'not_ready', not_ready: missing, ...warned } };
}

/** Routes without a key, which count against no limit and are answered in every stage. */
export function createHealthRoutes(health: Health): Hono<HttpEnv> {
  const app = new Hono<HttpEnv>();
  for (const path of healthPaths) {
    app.get(path, requestId, (context) => {
      const { status, body } = healthAnswer(health, path);
      context.header('cache-control', 'no-store');
      return context.json(body, status);
    });
  }
  return app;
}
