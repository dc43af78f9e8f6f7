import type { z } from 'zod';

/** What an operator lets containers have beyond what every engine has. */
export interface Policy {
  /** Whether an image, with its tag or digest, may be pulled and run. */
  readonly isAllowedImage: (image: string) => boolean;
  /** Whether a folder of the machine may be mounted. Named volumes always may. */
  readonly isAllowedBind: (path: string) => boolean;
  /** Whether containers may publish ports. */
  readonly allowsPorts: boolean;
  /** Whether the calls of the swarm driver are passed on as well. */
  readonly allowsSwarm: boolean;
}

/** What must bear one of these labels before a call on it is passed on. */
export interface Target {
  /** Of its inspection. */
  readonly path: string;
  readonly labels: readonly string[];
  /** The specification that it must be there with, its `Mode` aside. */
  readonly spec?: Readonly<Record<string, unknown>>;
}

/** A call that is passed on. */
export interface Rule {
  readonly method: string;
  /** Of the path without its version; groups are what `targets` and `query` get. */
  readonly path: RegExp;
  /** Names that the query may have; none when absent. */
  readonly query?: readonly string[];
  /** Has the engine show only what bears Headgate's label. */
  readonly isFiltered?: boolean;
  readonly targets?: (name: string, prefix: string) => readonly Target[];
  readonly check?: (policy: Policy, query: URLSearchParams) => string | null;
  readonly body?: (policy: Policy, body: unknown) => z.ZodType;
  /** Other things that the body names. */
  readonly bodyTargets?: (body: unknown, prefix: string, name: string) => readonly Target[];
  readonly passesRegistryAuth?: boolean;
}

/** On everything that Headgate makes in a Docker engine. */
export const managedLabel = 'headgate.managed';
/** On the containers of gateways, which join the networks of their engines. */
export const gatewayLabel = 'headgate.gateway';

export const id = '([a-zA-Z0-9][a-zA-Z0-9_.-]{0,254})';

export const network = (name: string, prefix: string): Target[] => [
  { path: `${prefix}/networks/${name}`, labels: [managedLabel] },
];
