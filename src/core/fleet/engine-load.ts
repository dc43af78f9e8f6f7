import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Endpoint } from '#base/endpoint.ts';

/** Requests that an engine works on, and those that wait inside it until it can. */
export interface EngineLoad {
  readonly running: number;
  readonly waiting: number;
}

/** `none` when an engine does not report its load, `unknown` when it did not answer. */
export type LoadReport = EngineLoad | 'none' | 'unknown';

const answerTimeoutMs = 2000;
const answerBytesMax = 4_194_304;

/**
 * Asks an engine's GET /metrics once, over a connection of its own, for vLLM's gauges of requests (Prometheus text;
 * one line each per engine core).
 */
export function readLoad(endpoint: Endpoint): Promise<LoadReport> {
  return new Promise((resolve) => {
    const request = endpoint.tls ? httpsRequest : httpRequest;
    const target =
      endpoint.socketPath === null ? { host: endpoint.host, port: endpoint.port } : { socketPath: endpoint.socketPath };
    const options = { ...target, path: `${endpoint.basePath}/metrics`, agent: false, timeout: answerTimeoutMs };
    const asked = request(options, (answer) => {
      if (answer.statusCode !== 200) {
        answer.resume();
        resolve('none');
        return;
      }
      let text = '';
      answer.setEncoding('latin1');
      answer.on('data', (chunk: string) => {
        text += chunk;
        if (text.length > answerBytesMax) asked.destroy();
      });
      answer.on('end', () => resolve(parseLoad(text)));
      answer.on('close', () => resolve('unknown'));
    });
    asked.on('timeout', () => asked.destroy());
    asked.on('error', () => resolve('unknown'));
    asked.end();
  });
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
