import { readFileSync } from 'node:fs';
import { type Endpoint, tcpEndpoint } from '#base/net/net.ts';
import type { DockerAddress } from './address.ts';
import type { ContainerSummary } from './answers.ts';
import { createDockerApi, type DockerApi, type DockerConnection } from './api.ts';
import { createForwards } from './forward.ts';
import { createSshConnection } from './ssh.ts';

/** A machine with a Docker engine. */
export interface HostAddress {
  readonly docker: DockerAddress;
  /** IP address on which containers publish their port; null: containers are reached at their own address. */
  readonly address: string | null;
}

/** Connection to a host's Docker engine, and to the ports of its containers. */
export interface HostConnection {
  readonly api: DockerApi;
  /** The gateway itself may have to join the containers' networks to reach them. */
  readonly joinsNetworks: boolean;
  /** Returns the endpoint of a running container's port; null while the container has no address yet. */
  endpointOf(container: ContainerSummary, network: string, port: number): Promise<Endpoint | null>;
  /** Closes connections to containers that are not in the set. */
  keep(containers: ReadonlySet<string>): void;
  close(): void;
}

export function connectHost(host: HostAddress): HostConnection {
  const { docker, address } = host;
  if (docker.type === 'ssh') return connectOverSsh(docker);
  return {
    api: createDockerApi(directConnection(docker)),
    joinsNetworks: address === null,
    endpointOf: async (container, network, port) =>
      address === null ? networkEndpoint(container, network, port) : publishedEndpoint(container, address, port),
    keep: () => undefined,
    close: () => undefined,
  };
}

function connectOverSsh(docker: Extract<DockerAddress, { type: 'ssh' }>): HostConnection {
  const ssh = createSshConnection(docker);
  const forwards = createForwards((host, port) => ssh.forward(host, port));
  return {
    // The agent connects; the path is never used.
    api: createDockerApi({ socketPath: docker.socketPath, agent: ssh.agent }),
    joinsNetworks: false,
    async endpointOf(container, network, port) {
      const target = networkEndpoint(container, network, port);
      if (target === null) return null;
      return { ...target, socketPath: await forwards.open(container.Id, target.host, port) };
    },
    keep: (containers) => forwards.keep(containers),
    close() {
      forwards.close();
      ssh.close();
    },
  };
}

function directConnection(docker: Exclude<DockerAddress, { type: 'ssh' }>): DockerConnection {
  if (docker.type === 'unix') return { socketPath: docker.socketPath };
  const { host, port, tls } = docker;
  if (tls === null) return { host, port };
  const readKeys = () => ({ ca: readFileSync(tls.ca), cert: readFileSync(tls.cert), key: readFileSync(tls.key) });
  return { host, port, tls: readKeys };
}

function networkEndpoint(container: ContainerSummary, network: string, port: number): Endpoint | null {
  const ip = container.NetworkSettings?.Networks?.[network]?.IPAddress ?? '';
  return ip === '' ? null : tcpEndpoint(ip, port);
}

function publishedEndpoint(container: ContainerSummary, address: string, port: number): Endpoint | null {
  const published = container.Ports?.find((found) => found.PrivatePort === port && found.IP === address);
  return published?.PublicPort ? tcpEndpoint(address, published.PublicPort) : null;
}
