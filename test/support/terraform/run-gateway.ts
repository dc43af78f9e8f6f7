import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import postgres from 'postgres';
import { afterAll, afterEach, beforeAll } from 'vitest';
import { descendantsOf } from '#base/process-identity.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { runPauseMs } from '#test/runs-folder.ts';
import { packOf } from '#test/stacks/raw-zip.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import {
  type GatewayProcess,
  givenKey,
  type Home,
  isAlive,
  makeHome,
  clearHome,
  useProcesses,
} from '#test/programs/gateway-process.ts';
import { hasPrinted } from './printed.ts';
import { SshServer } from './terraform.ts';
import { Gates } from './waiting-stacks.ts';

/** Gateways as processes or in the tests' process, with nodes that are OpenSSH servers on this machine. */

export interface Answer {
  readonly status: number;
  readonly body: Body;
}

export interface AskOptions {
  readonly method?: string;
  readonly body?: unknown;
  readonly key?: string;
}

/** Requests to a gateway. */
export class RunClient {
  readonly url: string;
  readonly #key: string;

  constructor(url: string, key = givenKey) {
    this.url = url;
    this.#key = key;
  }

  async ask(path: string, { body, key = this.#key, method = body === undefined ? 'GET' : 'POST' }: AskOptions = {}) {
    const isForm = body instanceof FormData;
    const headers = { authorization: `Bearer ${key}`, ...(isForm ? {} : { 'content-type': 'application/json' }) };
    const text = body === undefined ? null : isForm ? body : JSON.stringify(body);
    const answer = await fetch(new URL(path, this.url), { method, headers, body: text });
    return { status: answer.status, body: (await answer.json()) as Body };
  }

  /** @throws Error for a refusal */
  async made(path: string, body: unknown = {}): Promise<Body> {
    const answer = await this.ask(path, { body });
    if (answer.status >= 300) throw new Error(JSON.stringify(answer.body));
    return answer.body;
  }

  async remove(path: string): Promise<void> {
    const headers = { authorization: `Bearer ${this.#key}` };
    const answer = await fetch(new URL(path, this.url), { method: 'DELETE', headers });
    if (!answer.ok) throw new Error(await answer.text());
  }

  async upload(name: string, main: string, more: Readonly<Record<string, string>> = {}): Promise<Answer> {
    const form = new FormData();
    form.append('name', name);
    form.append('file', new File([new Uint8Array(packOf({ 'main.tf': main, ...more }))], `${name}.zip`));
    return this.ask('/v1/stacks', { body: form });
  }

  /** A cluster with these nodes, which let it in. */
  async cluster(server: SshServer, organizationId: string, more: object = {}): Promise<Body> {
    const body = { name: newName(), organization_id: organizationId, nodes: [nodeOf(server)], ...more };
    const cluster = await this.made('/v1/clusters', body);
    server.authorize(cluster.access_identity.public_key);
    return cluster;
  }

  async apply(stack: string, clusterId: string, inputs: object): Promise<Body> {
    return this.made(`/v1/stacks/${stack}/apply`, { cluster_id: clusterId, inputs });
  }

  run(id: string): Promise<Body> {
    return this.ask(`/v1/runs/${id}`).then(({ body }) => body);
  }

  /** The run, when it has one of these statuses. */
  becomes(id: string, ...statuses: readonly string[]): Promise<Body> {
    return eventually(async () => {
      const run = await this.run(id);
      if (statuses.includes(run.status)) return run;
      const final = ['APPLIED', 'SUPERSEDED', 'DESTROYED', 'CANCELED', 'FAILED'];
      if (final.includes(run.status)) throw new Error(`the run is ${JSON.stringify(run)}`);
      return null;
    }, runPauseMs);
  }

  async log(id: string): Promise<readonly Body[]> {
    return (await this.ask(`/v1/runs/${id}/logs?limit=10000`)).body.data;
  }

  /** @returns false where it failed without having printed that */
  async prints(id: string, text: string): Promise<boolean> {
    const found = await eventually(async () => {
      const [{ status }, log] = [await this.run(id), await this.log(id)];
      return hasPrinted(log, text) ? 'printed' : status === 'FAILED' && 'failed';
    }, runPauseMs);
    return found === 'printed';
  }
}

/** A gateway on a data folder. */
export abstract class RunGateway extends RunClient {
  readonly home: Home;

  constructor(home: Home, url: string) {
    super(url);
    this.home = home;
  }

  /** Everything that it has printed or logged. */
  abstract get output(): string;

  /** Ends it as SIGTERM does; its runs go on. */
  abstract stop(): Promise<void>;

  /** Folder of a run on the gateway's machine. */
  folderOf(runId: string): string {
    const folder = join(this.home.dataDir, 'runs');
    const hex = runId.replace(/^run_/, '');
    const name = readdirSync(folder).find((found) => found.replaceAll('-', '') === hex);
    return join(folder, name ?? 'none');
  }

  /** Process that holds a phase of a run. */
  holderOf(runId: string, phase: string): number {
    return Number(readFileSync(join(this.folderOf(runId), `phase-${phase}.pid`), 'latin1').split(' ')[0]);
  }

  /** Sends a signal to a program of a phase, and to nothing else of it. */
  signalIn(runId: string, phase: string, program: string, signal: NodeJS.Signals): void {
    const found = descendantsOf(this.holderOf(runId, phase)).find((child) => child.program === program);
    if (found === undefined) throw new Error(`${program} does not run`);
    process.kill(found.pid, signal);
  }

  /** Kills it with -9. */
  killIn(runId: string, phase: string, program: string): void {
    this.signalIn(runId, phase, program, 'SIGKILL');
  }
}

/** A gateway as a process, as users run it. */
export class ProcessGateway extends RunGateway {
  readonly process: GatewayProcess;

  constructor(home: Home, process: GatewayProcess, url: string) {
    super(home, url);
    this.process = process;
  }

  get output(): string {
    return this.process.output.stdout + this.process.output.stderr;
  }

  async stop(): Promise<void> {
    this.process.signal('SIGTERM');
    await this.process.exited;
  }

  async kill(): Promise<void> {
    this.process.signal('SIGKILL');
    await this.process.exited;
  }
}

/** A gateway in the process of the tests, which starts in a tenth of the time. */
class InnerGateway extends RunGateway {
  readonly #started: TestGateway;
  #ended: Promise<void> | null = null;

  constructor(home: Home, started: TestGateway) {
    super(home, started.url);
    this.#started = started;
  }

  get output(): string {
    return this.#started.logLines.join('');
  }

  stop(): Promise<void> {
    this.#ended ??= this.#started.stop();
    return this.#ended;
  }
}

let count = 0;
const newName = (): string => `site-${(count += 1)}`;

export function nodeOf(server: SshServer, more: object = {}): object {
  const { port: ssh_port, user: ssh_user, hostKey: host_key } = server;
  return { name: 'n0', address: '127.0.0.1', ssh_port, ssh_user, host_key, hardware_profile: 'plain', ...more };
}

export interface Place {
  readonly server: SshServer;
  readonly gates: Gates;
  readonly sql: postgres.Sql;
  readonly databaseUrl: string;
  start(more?: StartOptions): Promise<ProcessGateway>;
  /** A gateway that no test ends, and whose environment no test is about. */
  startHere(more?: StartOptions & { readonly databaseUrl?: string }): Promise<RunGateway>;
  /** A folder of the node. */
  folder(): string;
  /** Leases of gateways that were killed lapse now, and not in a minute. */
  lapse(minutes?: number): Promise<void>;
}

export interface StartOptions {
  readonly home?: Home;
  readonly env?: Readonly<Record<string, string>>;
}

/**
 * A database, a node and gateways.
 * @param when all of it ends: after each test, or `afterAll` tests of a file
 */
export function usePlace(when: typeof afterAll = afterEach): () => Promise<Place> {
  const processes = useProcesses(when);
  const cleanups: (() => Promise<void> | void)[] = [];
  when(async () => {
    for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
  });
  return async () => {
    const databaseUrl = await processes.database();
    const sql = postgres(databaseUrl, { max: 2, onnotice: () => undefined });
    cleanups.push(() => sql.end());
    const node = mkdtempSync(join(tmpdir(), 'hg-node-'));
    cleanups.push(() => rmSync(node, { recursive: true, force: true }));
    const server = await SshServer.start();
    cleanups.push(() => server.close());
    const gates = await Gates.start();
    cleanups.push(() => gates.close());
    const platformKey = randomBytes(32).toString('base64');
    const environmentWith = (env: StartOptions['env']) => ({
      HEADGATE_BOOTSTRAP_KEY: givenKey,
      HEADGATE_PLATFORM_KEY: platformKey,
      ...env,
    });
    const newHome = (): Home => {
      const home = makeHome({});
      cleanups.push(() => endRuns(home).then(() => clearHome(home)));
      return home;
    };
    let folders = 0;
    return {
      server,
      gates,
      sql,
      databaseUrl,
      folder: () => join(node, `f${(folders += 1)}`),
      async start({ home = newHome(), env } = {}) {
        const started = processes.run({ home, databaseUrl, env: environmentWith(env) });
        cleanups.push(async () => {
          started.signal('SIGKILL');
          await started.exited;
        });
        return new ProcessGateway(home, started, await started.url());
      },
      async startHere({ home = newHome(), env, ...more } = {}) {
        const { dataDir, enginesDir } = home;
        // As a gateway makes it that is root: the user of runs can enter it.
        mkdirSync(dataDir, { recursive: true, mode: 0o711 });
        const all = environmentWith(env);
        const gateway = new InnerGateway(
          home,
          await startGateway({ databaseUrl, dataDir, enginesDir, ...more, env: all }),
        );
        cleanups.push(() => gateway.stop());
        return gateway;
      },
      async lapse(minutes = 0) {
        await sql`
          update runs set lease_until = clock_timestamp() - make_interval(mins => ${minutes})
          where lease_until is not null`;
      },
    };
  };
}

export interface Site<Gateway extends RunGateway = RunGateway> {
  readonly place: Place;
  readonly gateway: Gateway;
  readonly organization: { readonly id: string; readonly key: string };
  /** A cluster that is the node of the place. */
  readonly cluster: Body;
}

/** Opens an organization with a cluster of its own. */
export async function openSite<Gateway extends RunGateway>(
  place: Place,
  gateway: Gateway,
  cluster: object = {},
): Promise<Site<Gateway>> {
  const { id, management_key: key } = await gateway.made('/v1/organizations', { name: newName() });
  return { place, gateway, organization: { id, key }, cluster: await gateway.cluster(place.server, id, cluster) };
}

/**
 * One gateway for the tests of a file that neither end it nor change its settings.
 * @returns opens an organization with a cluster for one test
 */
export function useSites(
  makeEnv: () => StartOptions['env'] | Promise<StartOptions['env']> = () => ({}),
): (cluster?: object) => Promise<Site> {
  const newPlace = usePlace(afterAll);
  let shared: { place: Place; gateway: RunGateway } | null = null;
  beforeAll(async () => {
    const env = await makeEnv();
    const place = await newPlace();
    shared = { place, gateway: await place.startHere(env === undefined ? {} : { env }) };
  });
  return (cluster) => {
    if (shared === null) throw new Error('the gateway is started before the tests, not while they are collected');
    return openSite(shared.place, shared.gateway, cluster);
  };
}

/** Runs outlive their gateway, and would outlive their test. */
async function endRuns({ dataDir }: Home): Promise<void> {
  const runs = join(dataDir, 'runs');
  const folders = existsSync(runs) ? readdirSync(runs).filter((name) => !name.startsWith('.')) : [];
  const files = folders.flatMap((folder) => readdirSync(join(runs, folder)).map((name) => join(runs, folder, name)));
  for (const file of files.filter((path) => path.endsWith('.pid'))) {
    const pid = Number(readFileSync(file, 'latin1').split(' ')[0]);
    const alive = [pid, ...descendantsOf(pid).map((child) => child.pid)].filter(isAlive);
    for (const target of alive) process.kill(target, 'SIGKILL');
    await eventually(async () => !isAlive(pid));
  }
}

/** Events of a run's log from behind a line on, until it ends or `enough` of them are there. */
export async function followLog(
  gateway: RunGateway,
  runId: string,
  { lastId, enough = Number.POSITIVE_INFINITY }: { readonly lastId?: number; readonly enough?: number } = {},
): Promise<{ readonly lines: readonly Body[]; readonly end: Body }> {
  const cut = new AbortController();
  const answer = await fetch(new URL(`/v1/runs/${runId}/logs`, gateway.url), {
    signal: cut.signal,
    headers: {
      authorization: `Bearer ${givenKey}`,
      accept: 'text/event-stream',
      ...(lastId === undefined ? {} : { 'last-event-id': String(lastId) }),
    },
  });
  const lines: Body[] = [];
  let end: Body = null;
  let text = '';
  for await (const part of answer.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    text += part;
    for (let at = text.indexOf('\n\n'); at !== -1 && lines.length < enough; at = text.indexOf('\n\n')) {
      const fields = new Map(
        text
          .slice(0, at)
          .split('\n')
          .map((line): [string, string] => splitField(line)),
      );
      text = text.slice(at + 2);
      const data = fields.get('data');
      if (data === undefined) continue;
      if (fields.get('event') === 'status') end = JSON.parse(data);
      else lines.push({ id: Number(fields.get('id')), ...JSON.parse(data) });
    }
    if (lines.length >= enough) break;
  }
  cut.abort();
  return { lines, end };
}

function splitField(line: string): [string, string] {
  const colon = line.indexOf(':');
  return [line.slice(0, colon), line.slice(colon + 1).trimStart()];
}
