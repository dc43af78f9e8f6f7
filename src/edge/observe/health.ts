import { Hono } from 'hono';
import type { ReadinessAnswer } from '#edge/contract/health.ts';
import { type HttpEnv, requestId } from '#edge/http/http.ts';

/** Stage of a gateway's life. */
export type Stage = 'starting' | 'serving' | 'draining';

export interface Health {
  /** Sets the stage. The first stage is `starting`. */
  enter(stage: Stage): void;
  readonly stage: Stage;
  /** Names of parts that keep the gateway from accepting traffic, without details of the machine; empty if it may. */
  notReady(): readonly string[];
  /** Names of problems that an operator has to fix, whether or not the gateway accepts traffic. */
  warnings(): readonly string[];
}

/** A part that must work for the gateway to serve requests. */
export interface HealthPart {
  readonly name: 'database' | 'redis' | 'fleet';
  readonly isReady: () => boolean;
}

export const healthPaths: readonly string[] = ['/healthz', '/readyz'];

/** A problem that may exist although all parts are ready. */
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

export interface HealthAnswer {
  readonly status: 200 | 503;
  readonly body: ReadinessAnswer | { readonly status: 'ok' };
}

/** Answers `/healthz`, which depends on nothing else, and `/readyz`, which names the missing parts. */
export function healthAnswer(health: Health, path: string): HealthAnswer {
  if (path === '/healthz') return { status: 200, body: { status: 'ok' } };
  const [missing, warnings] = [health.notReady(), health.warnings()];
  const warned = warnings.length > 0 && { warnings };
  if (missing.length === 0) return { status: 200, body: { status: 'ready', ...warned } };
  return { status: 503, body: { status: 'not_ready', not_ready: missing, ...warned } };
}

/** Creates the health routes, which need no key, count against no limit, and answer in every stage. */
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
