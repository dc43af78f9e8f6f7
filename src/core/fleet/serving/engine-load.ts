import type { Replica } from '#core/fleet/drivers/drivers.ts';
import { askEngine } from './engine-http.ts';

/** Requests that an engine works on, and those that wait inside it until it can. */
export interface EngineLoad {
  readonly running: number;
  readonly waiting: number;
}

/** `none` when an engine does not report its load, `unknown` when it did not answer. */
export type LoadReport = EngineLoad | 'none' | 'unknown';

const answerTimeoutMs = 2000;

/**
 * Asks an engine's GET /metrics once, over a connection of its own, for vLLM's gauges of requests (Prometheus text;
 * one line each per engine core).
 */
export async function readLoad(replica: Replica): Promise<LoadReport> {
  const answer = await askEngine(replica, { method: 'GET', path: '/metrics', timeoutMs: answerTimeoutMs });
  if (typeof answer === 'string') return 'unknown';
  return answer.status === 200 ? parseLoad(answer.text) : 'none';
}

const gauges = /^vllm:num_requests_(running|waiting)(?:\{[^}]*\})? ([0-9.eE+]+)$/gm;

/** @returns `none` for an engine that has no such gauges */
export function parseLoad(text: string): LoadReport {
  const sums = { running: 0, waiting: 0 };
  let seen = false;
  for (const [, name, value] of text.matchAll(gauges)) {
    sums[name === 'running' ? 'running' : 'waiting'] += Number(value);
    seen = true;
  }
  return seen ? sums : 'none';
}

/** The load of an engine's replicas, all together. */
export function sumLoads(reports: readonly LoadReport[]): LoadReport {
  const loads = reports.filter((report) => typeof report === 'object');
  if (loads.length === 0)
    return reports.length > 0 && reports.every((report) => report === 'none') ? 'none' : 'unknown';
  return loads.reduce((sum, { running, waiting }) => ({
    running: sum.running + running,
    waiting: sum.waiting + waiting,
  }));
}
