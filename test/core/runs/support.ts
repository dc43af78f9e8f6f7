import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import { createAudit, systemAuthor } from '#core/audit/audit.ts';
import {
  createRuns,
  findRunner,
  isFinal,
  type LoggedLine,
  type Run,
  type RunMode,
  type Runner,
  type RunnerSearch,
  type Runs,
  type RunsOptions,
  type RunSources,
  type RunStatus,
  type Sealer,
  type StackInput,
  type StackPackage,
} from '#core/runs/runs.ts';
import { createTestDatabase } from '#test/database.ts';

/** AES-256-GCM; the context is authenticated with it. */
function createSealer(): Sealer {
  const key = randomBytes(32);
  return {
    mark: () => Promise.resolve(null),
    seal(bytes, context) {
      const nonce = randomBytes(12);
      const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(context));
      const sealed = [cipher.update(bytes), cipher.final()];
      return Promise.resolve(Buffer.concat([nonce, cipher.getAuthTag(), ...sealed]));
    },
    open(sealed, context) {
      const decipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(0, 12)).setAAD(Buffer.from(context));
      decipher.setAuthTag(sealed.subarray(12, 28));
      return Promise.resolve(Buffer.concat([decipher.update(sealed.subarray(28)), decipher.final()]));
    },
  };
}

export const privateKey = `-----BEGIN OPENSSH PRIVATE KEY-----\n${randomBytes(40).toString('base64')}\n-----END OPENSSH PRIVATE KEY-----\n`;

export interface StackMore {
  readonly inputs?: StackInput[];
  readonly files?: Record<string, string>;
  /** Paths of files that may be executed. */
  readonly executable?: readonly string[];
  readonly isGlobal?: boolean;
}

/** Programs that are looked for on this machine. */
export const runnerSearch: Omit<RunnerSearch, 'runsDir'> = {
  terraformBin: null,
  mirror: null,
  allowUnsandboxed: false,
  isRoot: process.getuid?.() === 0,
  user: { uid: 65_532, gid: 65_532 },
  egress: 'cluster',
  required: [],
  memoryBytes: 512 * 1_048_576,
  milliCpus: 1000,
  diskBytes: 256 * 1_048_576,
};

/** The node of every cluster. Nothing listens there. */
const node = {
  id: 'node_019ab1c2d3e47f008a1b2c3d4e5f6071',
  name: 'n-1',
  address: '127.0.0.1',
  private_address: null,
  ssh_port: 22,
  ssh_user: 'root',
  host_key: null,
  gpus: 0,
  hardware_profile: 'plain',
  role: 'head' as const,
};

export interface RunsBench {
  readonly db: Db;
  readonly runner: Runner;
  readonly runsDir: string;
  /** A gateway whose loop runs; closed after the test. */
  gateway(options?: Partial<RunsOptions>): Runs;
  /** The id of a version of a stack with this module. */
  stack(main: string, more?: StackMore): string;
  /** Sources of every gateway's runs, unless it has its own. */
  readonly sources: RunSources;
  /** Archives a cluster, as far as runs see it. */
  endCluster(clusterId: string): void;
  /** Suspends the organization of a cluster, as far as runs see it. */
  suspend(clusterId: string): void;
  /** Gives it to another organization, as far as runs see it. */
  moveCluster(clusterId: string, organizationId: string): void;
  apply(
    runs: Runs,
    version: string,
    more?: {
      clusterId?: string;
      organizationId?: string;
      inputs?: object;
      stackId?: string;
      mode?: RunMode;
      expiresAfter?: number;
    },
  ): Promise<Run>;
  ended(runs: Runs, run: Run): Promise<Run>;
  becomes(runs: Runs, run: Run, status: RunStatus): Promise<Run>;
  /** Waits for a line that has this text. */
  prints(runs: Runs, run: Run, text: string): Promise<void>;
  lines(runs: Runs, run: Run): Promise<readonly LoggedLine[]>;
  /** Waits until no work folder is there: they go behind the end of a run. */
  leavesNothing(): Promise<void>;
}

/** Real Terraform in bubblewrap, over a database of the file's own. */
export function useRuns(): RunsBench {
  const open: { db?: Db; runner?: Runner; dir?: string; drop?: () => Promise<void> } = {};
  const stacks = new Map<string, StackPackage>();
  const gone = new Set<string>();
  const suspended = new Set<string>();
  const owners = new Map<string, string>();
  const sealer = createSealer();
  let gateways: Runs[] = [];
  const need = <T>(value: T | undefined): T => {
    if (value === undefined) throw new Error('it is there once the tests have begun');
    return value;
  };

  beforeAll(async () => {
    const database = await createTestDatabase();
    const dir = await mkdtemp('/tmp/headgate-runs-');
    const search = { ...runnerSearch, runsDir: join(dir, 'runs') };
    const { chmod } = await import('node:fs/promises');
    await chmod(dir, 0o711);
    const found = await findRunner(search);
    if (found.runner === null) throw new Error(found.problem);
    const db = connectDb(database.url, { poolMax: 8 });
    Object.assign(open, { db, dir, runner: found.runner });
    open.drop = async () => {
      await db.close();
      await database.drop();
      await rm(dir, { recursive: true, force: true });
    };
  });
  beforeEach(() => {
    gateways = [];
  });
  afterEach(async () => {
    await Promise.all(gateways.map(({ loop }) => loop.close()));
    for (const id of await bench.runner.list()) await bench.runner.remove(id);
    await bench.db.sql`truncate runs, run_log, run_plans, installations, stack_states`;
  });
  afterAll(() => open.drop?.());

  const sources: RunSources = {
    pinStackVersion: (_, id) => Promise.resolve(stacks.has(id)),
    unpinStackVersion: () => Promise.resolve(),
    stackPackage: (id) => Promise.resolve(stacks.get(id) ?? null),
    holdCluster: (_, id) => Promise.resolve(gone.has(id) ? null : (owners.get(id) ?? id)),
    privateKey: () => Promise.resolve(privateKey),
    cluster: (id) =>
      Promise.resolve(
        gone.has(id)
          ? null
          : {
              id,
              publicId: `cluster_${id.replaceAll('-', '')}`,
              name: 'one',
              organizationId: owners.get(id) ?? id,
              organizationStatus: suspended.has(id) ? ('suspended' as const) : ('active' as const),
              publicDomain: 'apps.test',
              engineApiKey: 'key-of-the-engines',
              nodes: [node],
            },
      ),
  };

  const bench: RunsBench = {
    sources,
    get db() {
      return need(open.db);
    },
    get runner() {
      return need(open.runner);
    },
    get runsDir() {
      return join(need(open.dir), 'runs');
    },
    gateway(options = {}) {
      const { db, runner } = bench;
      const terraform = { path: '', product: 'Terraform' as const, version: '' };
      const runs = createRuns({
        db,
        clock: systemClock,
        audit: createAudit({ clock: systemClock }),
        log: createLog('silent'),
        sealer,
        holder: uuidv7(),
        findRunner: () => Promise.resolve({ runner, terraform, problem: null }),
        sources: bench.sources,
        raiseIn: () => Promise.resolve(),
        ...options,
      });
      gateways.push(runs);
      runs.loop.start();
      return runs;
    },
    endCluster: (id) => void gone.add(id),
    suspend: (id) => void suspended.add(id),
    moveCluster: (id, organizationId) => void owners.set(id, organizationId),
    stack(main, { inputs = [], files = {}, executable = [], isGlobal = true } = {}) {
      const id = uuidv7();
      const all = { 'main.tf': main, ...files };
      stacks.set(id, {
        isGlobal,
        root: '',
        files: Object.entries(all).map(([path, text]) => {
          return { path, bytes: Buffer.from(text), isExecutable: executable.includes(path) };
        }),
        inputs,
        web: null,
      });
      return id;
    },
    async apply(
      runs,
      version,
      { clusterId = uuidv7(), organizationId = clusterId, inputs = {}, stackId = version, ...more } = {},
    ) {
      owners.set(clusterId, organizationId);
      const ids = { clusterId, organizationId, stackId, stackVersionId: version };
      const what = { stackName: 'a-stack', stackVersion: 1, declared: [], origin: 'api' as const };
      const request = { ...ids, ...what, ...more, node: '', access: 'public' as const };
      const result = await runs.apply({ ...request, inputs: { ...inputs }, author: systemAuthor });
      if (result.kind !== 'created') throw new Error(result.kind);
      return result.run;
    },
    ended: (runs, { id }) => until(async () => found(await runs.find(id), ({ status }) => isFinal(status))),
    becomes: (runs, { id }, wanted) => until(async () => found(await runs.find(id), ({ status }) => status === wanted)),
    async prints(runs, run, text) {
      await until(async () => (await bench.lines(runs, run)).find(({ message }) => message.includes(text)) ?? null);
    },
    lines: (runs, { id }) => runs.log(id, 0, 100_000),
    leavesNothing: () => until(async () => ((await bench.runner.list()).length === 0 ? undefined : null)),
  };
  return bench;
}

function found(run: Run | null, isWanted: (run: Run) => boolean): Run | null {
  return run !== null && isWanted(run) ? run : null;
}

async function until<T>(look: () => Promise<T | null>): Promise<T> {
  for (;;) {
    const seen = await look();
    if (seen !== null) return seen;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
