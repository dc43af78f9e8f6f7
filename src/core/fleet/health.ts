import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Endpoint } from '#base/endpoint.ts';

const probeTimeoutMs = 2000;

/**
 * Asks GET /health once, over a connection of its own.
 * @returns the status, or null when nothing answers within two seconds
 */
export function probeHealth(endpoint: Endpoint): Promise<number | null> {
  return new Promise((resolve) => {
    const request = endpoint.tls ? httpsRequest : httpRequest;
    const target =
      endpoint.socketPath === null ? { host: endpoint.host, port: endpoint.port } : { socketPath: endpoint.socketPath };
    const options = { ...target, path: `${endpoint.basePath}/health`, agent: false, timeout: probeTimeoutMs };
    const probe = request(options, (response) => {
      response.resume();
      resolve(response.statusCode ?? null);
    });
    probe.on('timeout', () => probe.destroy());
    // Covers refused, reset and timed out alike: a probe only asks whether it answers.
    probe.on('error', () => resolve(null));
    probe.end();
  });
}

/** vLLM answers 200 when its model is loaded; another engine that has no such route answers 404 once it listens. */
export function isHealthy(status: number | null, kind: 'vllm' | 'openai'): boolean {
  return status === 200 || (kind === 'openai' && status === 404);
}
