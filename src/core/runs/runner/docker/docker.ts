import { connectHost, DockerError, type HostAddress, pullImage, type RegistryLogins } from '#base/docker/docker.ts';
import { isLate } from '#base/is-late.ts';
import type { Log } from '#base/log.ts';
import type { ContainerRunners, Runner } from '#core/runs/runner/types.ts';
import type { ContainerSettings } from './bodies.ts';
import { createDockerRunner } from './docker-runner.ts';
import { createSwarmNodes, type SwarmGates, type SwarmNodes } from './swarm-nodes.ts';

export type { ContainerSettings } from './bodies.ts';
export { gateAddresses, type SwarmGates } from './swarm-nodes.ts';

/** A machine whose Docker engine may have runs. */
export interface RunHost extends HostAddress {
  /** Name that operators use. */
  readonly name: string;
}

export interface ContainerRunnersOptions {
  readonly hosts: readonly RunHost[];
  /** Nodes of a Swarm in addition to the hosts; null if there are none. */
  readonly gates: SwarmGates | null;
  readonly settings: ContainerSettings;
  /** Distinguishes runs of this database from those of another database on the same engine. */
  readonly fleetId: string;
  readonly logins: RegistryLogins;
  readonly log: Log;
}

/** Maximum wait for a host: a host that hangs must not delay the others. */
const askWaitMs = 5000;
/** Age up to which the state of a host is reused. */
const freshMs = 5000;
const pullAgainMs = 60_000;

/** Creates the runners of all hosts. Each run goes to the host with the fewest runs. */
export function createContainerRunners(options: ContainerRunnersOptions): ContainerRunners {
  const listed = options.hosts.map((host) => new Host(host, options));
  const nodes = options.gates === null ? null : nodesOf(options.gates, options);
  let hosts: readonly Host[] = listed;

  /** Returns the hosts that answer. Two entries for one machine count as one place. */
  async function answering(): Promise<readonly Host[]> {
    hosts = [...listed, ...((await nodes?.find()) ?? [])];
    await Promise.all(hosts.map((host) => host.check()));
    const places = new Set<string>();
    return hosts.filter((host) => {
      const place = host.runner?.place;
      if (place === undefined || places.has(place)) return false;
      places.add(place);
      return true;
    });
  }

  return {
    reachable: async () => (await answering()).flatMap(({ runner }) => runner ?? []),
    async next(load) {
      const ready = (await answering()).flatMap(({ canBegin, runner }) =>
        canBegin && runner !== null ? [runner] : [],
      );
      const runsOf = ({ place }: Runner): number => load.get(place) ?? 0;
      return ready.toSorted((a, b) => runsOf(a) - runsOf(b))[0] ?? null;
    },
    doubt(place) {
      for (const host of hosts) if (host.runner?.place === place) host.doubt();
    },
    troubles() {
      const ofSwarm = nodes?.trouble() ?? null;
      const own = hosts.flatMap(({ name, trouble }) => (trouble === null ? [] : [{ host: name, trouble }]));
      return ofSwarm === null ? own : [...own, { host: 'swarm', trouble: ofSwarm }];
    },
    close() {
      for (const host of listed) host.close();
      nodes?.close();
    },
  };
}

/**
 * Creates the nodes behind the gates. A gate's network is private, so it needs no TLS, and a gate allows only what runs
 * need.
 */
function nodesOf(gates: SwarmGates, options: ContainerRunnersOptions): SwarmNodes<Host> {
  const docker = (host: string) => ({ type: 'tcp' as const, host, port: gates.port, tls: null });
  return createSwarmNodes(
    gates,
    (address) => new Host({ name: `swarm ${address}`, docker: docker(address), address: null }, options, true),
  );
}

class Host {
  #name: string;
  readonly #isNode: boolean;
  readonly #options: ContainerRunnersOptions;
  readonly #connection;
  readonly #closing = new AbortController();
  #checking: Promise<void> | null = null;
  #checkedAtMs = Number.NEGATIVE_INFINITY;
  #pulling = false;
  #pulledAtMs = Number.NEGATIVE_INFINITY;
  #found: Runner | null = null;
  #isReachable = false;
  #hasImage = false;
  /** Undefined before the first check. */
  #trouble: string | null | undefined;

  /** @param isNode true if no operator has named the host: it gets the name that its machine reports */
  constructor(host: RunHost, options: ContainerRunnersOptions, isNode = false) {
    this.#name = host.name;
    this.#isNode = isNode;
    this.#options = options;
    this.#connection = connectHost(host);
  }

  get name(): string {
    return this.#name;
  }

  /** Null while the host does not answer. */
  get runner(): Runner | null {
    return this.#isReachable ? this.#found : null;
  }

  get canBegin(): boolean {
    return this.#isReachable && this.#hasImage;
  }

  get trouble(): string | null {
    return this.#trouble ?? null;
  }

  doubt(): void {
    this.#checkedAtMs = Number.NEGATIVE_INFINITY;
  }

  /** Checks the host, at most every `freshMs`. Never throws. */
  async check(): Promise<void> {
    if (Date.now() - this.#checkedAtMs < freshMs) return;
    this.#checking ??= this.#ask().finally(() => (this.#checking = null));
    const late = await isLate(this.#checking, askWaitMs);
    if (late) this.#note(false, 'its Docker engine does not respond');
  }

  async #ask(): Promise<void> {
    const { api } = this.#connection;
    const { settings, fleetId } = this.#options;
    try {
      if (!this.#isReachable) await api.negotiate();
      const { ID: engineId, Name: name } = await api.info();
      if (!engineId) throw new Error('its Docker engine does not report an ID');
      if (this.#isNode && name) this.#name = name;
      if (this.#found?.place !== `docker ${engineId}`) {
        this.#found = createDockerRunner({ api, host: this.name, engineId, fleetId, settings });
      }
      const image = await this.#findImage();
      this.#hasImage = image === true;
      if (image === true) this.#note(true, null);
      else if (image !== false) this.#note(true, image);
      else {
        this.#note(true, this.trouble ?? `the image ${settings.image} is missing; pulling it`);
        this.#pull();
      }
    } catch (error) {
      this.#note(false, error instanceof Error ? error.message : String(error));
    }
    this.#checkedAtMs = Date.now();
  }

  /** @returns true if the image exists, or the engine's reason against it */
  async #findImage(): Promise<boolean | string> {
    const { image } = this.#options.settings;
    try {
      return await this.#connection.api.hasImage(image);
    } catch (error) {
      if (!(error instanceof DockerError) || error.status === null) throw error;
      return `the image ${image} cannot be used: ${error.reason}`;
    }
  }

  #note(isReachable: boolean, trouble: string | null): void {
    const { log, settings } = this.#options;
    this.#isReachable = isReachable;
    if (this.#trouble === trouble) return;
    this.#trouble = trouble;
    const host = this.name;
    if (trouble === null) log.info({ host, image: settings.image }, 'this host accepts runs');
    else log.warn({ host, trouble }, 'a host accepts no runs of stacks (see trouble)');
  }

  #pull(): void {
    if (this.#pulling || Date.now() - this.#pulledAtMs < pullAgainMs) return;
    this.#pulling = true;
    void this.#pullOnce();
  }

  async #pullOnce(): Promise<void> {
    const { settings, logins } = this.#options;
    const { image: reference } = settings;
    const { api } = this.#connection;
    const { signal } = this.#closing;
    try {
      const { login } = await logins.find(reference);
      await pullImage({ api, reference, login, signal, onProgress: () => undefined });
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      if (!signal.aborted) this.#note(true, `the image ${reference} is missing and could not be pulled: ${why}`);
    }
    this.#pulling = false;
    this.#pulledAtMs = Date.now();
    this.#checkedAtMs = Number.NEGATIVE_INFINITY;
  }

  close(): void {
    this.#closing.abort();
    this.#connection.close();
  }
}
