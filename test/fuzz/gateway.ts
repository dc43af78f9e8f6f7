import { readdirSync, readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import type { Body } from '#test/inference/inference-gateway.ts';
import { clearHome, givenKey, type GatewayProcess, makeHome, runGateway } from '#test/programs/gateway-process.ts';
import { freePort } from '#test/free-port.ts';
import { BrokenPromise } from './target.ts';

/** A gateway that is fuzzed: a process of its own, with a customer who is served all the while. */
export interface FuzzedGateway {
  readonly url: string;
  /** @throws BrokenPromise with what it printed when it has ended */
  isAlive(): void;
  /** The customer asks for a small answer. @throws BrokenPromise when it is not 200 */
  serveCustomer(): Promise<void>;
  openOrganization(): Promise<Organization>;
  /** Gauges and counters by name; of several series the sum. */
  metrics(): Promise<ReadonlyMap<string, number>>;
  /** Memory of the process, in MiB. */
  memoryMiB(): number;
  /** Files and connections that it has open. */
  descriptors(): number;
  close(): Promise<void>;
}

export interface Organization {
  readonly id: string;
  readonly managementKey: string;
  /** A key of scope `inference`, without limits. */
  readonly key: string;
  /** The id of a key that may be changed and revoked. */
  readonly spareKeyId: string;
  api(path: string, call?: { readonly method?: string; readonly body?: object }): Promise<Body>;
}

export interface FuzzedOptions {
  readonly databaseUrl: string | null;
  readonly engines: Readonly<Record<string, string>>;
  readonly env?: Readonly<Record<string, string>>;
  /** Asked for by the customer. */
  readonly model: string;
}

/** Opening credit of every organization, USD. */
export const openingUsd = '1000';

const logLinesShown = 20;

export async function startFuzzed({ databaseUrl, engines, env = {}, model }: FuzzedOptions): Promise<FuzzedGateway> {
  const home = makeHome(engines);
  const metricsPort = await freePort();
  const own = { HEADGATE_BOOTSTRAP_KEY: givenKey, HEADGATE_METRICS_PORT: String(metricsPort), LOG_LEVEL: 'warn' };
  const gateway = runGateway({ home, databaseUrl, env: { ...own, ...env } });
  const agent = new Agent({ keepAlive: true });
  const close = async (): Promise<void> => {
    agent.destroy();
    await stop(gateway, databaseUrl === null);
    await clearHome(home);
  };
  let over = false;
  void gateway.exited.then(() => (over = true));
  try {
    const url = await gateway.url();
    const customer = await openOrganization(url);
    const ask = (): Promise<void> => askOnce(url, { key: customer.key, model, agent });
    await ask();
    return {
      url,
      close,
      isAlive() {
        if (!over) return;
        const lines = `${gateway.output.stdout}${gateway.output.stderr}`.trim().split('\n');
        throw new BrokenPromise(`the gateway has ended:\n${lines.slice(-logLinesShown).join('\n')}`);
      },
      serveCustomer: ask,
      openOrganization: () => openOrganization(url),
      metrics: () => readMetrics(metricsPort),
      memoryMiB: () => Math.round(Number(/^VmRSS:\s+(\d+) kB$/m.exec(status(gateway.pid))?.[1]) / 1024),
      descriptors: () => readdirSync(`/proc/${gateway.pid}/fd`).length,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

const status = (pid: number): string => readFileSync(`/proc/${pid}/status`, 'utf8');

/** The gateway's own PostgreSQL ends separately, so that it gets the time for that. */
async function stop(gateway: GatewayProcess, hasPostgres: boolean): Promise<void> {
  if (hasPostgres) gateway.signal('SIGTERM');
  else gateway.signal('SIGKILL', 'group');
  await gateway.exited;
}

function askOnce(url: string, { key, model, agent }: { key: string; model: string; agent: Agent }): Promise<void> {
  const body = JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }], max_tokens: 2 });
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'content-length': body.length };
  return new Promise((resolve, reject) => {
    const broken = (what: string): void => reject(new BrokenPromise(`the customer was answered ${what}`));
    const sent = request(new URL('/v1/chat/completions', url), { method: 'POST', headers, agent }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (part: string) => (text += part));
      answer.on('error', ({ message }) => broken(message));
      answer.on('end', () => (answer.statusCode === 200 ? resolve() : broken(`${answer.statusCode}: ${text}`)));
    });
    sent.on('error', ({ message }) => broken(message));
    sent.end(body);
  });
}

async function callApi(url: URL, key: string, call: { method?: string; body?: object }): Promise<Body> {
  const { body, method = body === undefined ? 'GET' : 'POST' } = call;
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const answer = await fetch(url, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${url.pathname}: ${answer.status} ${text}`);
  return JSON.parse(text);
}

async function openOrganization(url: string): Promise<Organization> {
  const admin = (path: string, body: object): Promise<Body> => callApi(new URL(path, url), givenKey, { body });
  const made = await admin('/v1/organizations', { name: `Organization ${Math.random()}` });
  const credit = { organization_id: made.id, amount: openingUsd, reference: 'opening' };
  await admin('/v1/wallet/credits', credit);
  const api: Organization['api'] = (path, call = {}) => callApi(new URL(path, url), made.management_key, call);
  const limits = { requests_per_minute: null, tokens_per_minute: null, monthly_token_limit: null };
  const key = await api('/v1/keys', { body: { name: 'inference', max_concurrency: 1000, ...limits } });
  const spare = await api('/v1/keys', { body: { name: 'spare' } });
  return { id: made.id, managementKey: made.management_key, key: key.secret, spareKeyId: spare.id, api };
}

async function readMetrics(port: number): Promise<ReadonlyMap<string, number>> {
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  const sums = new Map<string, number>();
  for (const [, name = '', value] of text.matchAll(/^([a-z_]+)(?:\{.*\})? (\S+)$/gm)) {
    sums.set(name, (sums.get(name) ?? 0) + Number(value));
  }
  return sums;
}
