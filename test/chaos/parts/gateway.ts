import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { clearHome, type GatewayProcess, givenKey, type Home, runGateway } from '#test/programs/gateway-process.ts';
import { endWithUs } from './tidy.ts';
import { inTime, within } from './wait.ts';

/** A gateway in one place, which may be killed and started there again. */
export interface ChaosGateway {
  readonly index: number;
  /** Where it listens. */
  readonly url: string;
  readonly pid: number;
  readonly home: Home;
  /** It listens. */
  readonly lives: boolean;
  /** When this place's gateways were killed, or ended of themselves. */
  readonly ends: readonly GatewayEnd[];
  /** @param more environment for this start */
  start(more?: Readonly<Record<string, string>>): Promise<void>;
  kill(): Promise<void>;
  freeze(): void;
  thaw(): void;
  /** SIGTERM. @returns its exit code, null when it is not over in time */
  terminate(timeoutMs: number): Promise<number | null>;
  /** Output of this place's gateways. */
  output(): string;
  close(): Promise<void>;
}

export interface GatewayEnd {
  readonly pid: number;
  readonly atMs: number;
  readonly how: 'killed' | 'terminated' | 'by itself';
}

export interface GatewayOptions {
  readonly index: number;
  /** A folder of its own, empty. */
  readonly dir: string;
  readonly databaseUrl: string;
  readonly engines: Readonly<Record<string, string>>;
  readonly env: Readonly<Record<string, string>>;
}

const startTimeoutMs = 60_000;
/** Settings whose effect the rows are about stand as the product has them. */
const productEnv = { HEADGATE_SPOOL_AFTER_MS: '250', HEADGATE_MAX_ACTIVE_KEYS: '10000' };

export function createGateway(options: GatewayOptions): ChaosGateway {
  return new Place(options);
}

class Place implements ChaosGateway {
  readonly #options: GatewayOptions;
  readonly home: Home;
  readonly ends: GatewayEnd[] = [];
  #running: GatewayProcess | null = null;
  readonly #started: GatewayProcess[] = [];
  #how: GatewayEnd['how'] = 'by itself';
  #url = '';

  constructor(options: GatewayOptions) {
    this.#options = options;
    this.home = makeHomeIn(options.dir, options.engines);
  }

  get index(): number {
    return this.#options.index;
  }

  get url(): string {
    return this.#url;
  }

  get pid(): number {
    return this.#running?.pid ?? 0;
  }

  get lives(): boolean {
    return this.#running !== null && this.#url !== '';
  }

  async start(more: Readonly<Record<string, string>> = {}): Promise<void> {
    const { databaseUrl, env } = this.#options;
    const started = runGateway({
      home: this.home,
      databaseUrl,
      env: { ...productEnv, LOG_LEVEL: 'warn', HEADGATE_BOOTSTRAP_KEY: givenKey, ...env, ...more },
    });
    const left = endWithUs(started.pid, 'group');
    this.#how = 'by itself';
    this.#url = '';
    this.#running = started;
    this.#started.push(started);
    void started.exited.then(() => {
      left();
      this.ends.push({ pid: started.pid, atMs: performance.now(), how: this.#how });
      if (this.#running === started) this.#running = null;
    });
    const url = await inTime(startTimeoutMs, started.url());
    if (url === null) throw new Error(`gateway ${this.index} does not start: ${tail(started)}`);
    this.#url = url;
  }

  async kill(): Promise<void> {
    const running = this.#running;
    if (running === null) return;
    this.#how = 'killed';
    running.signal('SIGKILL');
    await running.exited;
    await within(1000, () => this.#running === null);
  }

  freeze(): void {
    this.#running?.signal('SIGSTOP');
  }

  thaw(): void {
    this.#running?.signal('SIGCONT');
  }

  async terminate(timeoutMs: number): Promise<number | null> {
    const running = this.#running;
    if (running === null) return null;
    this.#how = 'terminated';
    running.signal('SIGTERM');
    return (await inTime(timeoutMs, running.exited))?.code ?? null;
  }

  output(): string {
    return this.#started.map(({ output }) => `${output.stdout}${output.stderr}`).join('\n');
  }

  async close(): Promise<void> {
    this.thaw();
    await this.kill();
    await clearHome({ ...this.home, dir: this.home.dataDir });
  }
}

function makeHomeIn(dir: string, engines: Readonly<Record<string, string>>): Home {
  const home = { dir, dataDir: join(dir, 'data'), enginesDir: join(dir, 'engines') };
  mkdirSync(home.enginesDir, { recursive: true });
  const writeEngine = (id: string, text: string): void => writeFileSync(join(home.enginesDir, `${id}.yaml`), text);
  for (const [id, text] of Object.entries(engines)) writeEngine(id, text);
  return { ...home, writeEngine };
}

function tail({ output }: GatewayProcess): string {
  return `${output.stdout}${output.stderr}`.trim().split('\n').slice(-3).join(' | ');
}
