import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Endpoint } from '#base/endpoint.ts';

/** Requests that wait inside an engine; `none` when it does not report that, `unknown` when it did not answer. */
export type WaitingReport = number | 'none' | 'unknown';

const answerTimeoutMs = 2000;
const answerBytesMax = 4_194_304;

/**
 * Asks an engine's GET /metrics once, over a connection of its own, for vLLM's gauge of waiting requests (Prometheus
 * text; one line per engine core).
 */
export function readWaiting(endpoint: Endpoint): Promise<WaitingReport> {
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
      answer.on('end', () => resolve(parseWaiting(text)));
      answer.on('close', () => resolve('unknown'));
    });
    asked.on('timeout', () => asked.destroy());
    asked.on('error', () => resolve('unknown'));
    asked.end();
  });
}

const gauge = /^vllm:num_requests_waiting(?:\{[^}]*\})? ([0-9.eE+]+)$/gm;

/** @returns `none` for an engine that has no such gauge */
export function parseWaiting(text: string): WaitingReport {
  let sum: WaitingReport = 'none';
  for (const [, value] of text.matchAll(gauge)) sum = (sum === 'none' ? 0 : sum) + Number(value);
  return sum;
}
