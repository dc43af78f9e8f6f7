import type { z } from 'zod';
import type { AllowedMount } from '#base/host-folder.ts';

/** Where an operator writes each list: the gate's own setting, and the one in `.env` of compose that fills it. */
export const settingNames = {
  images: 'HEADGATE_DOCKER_IMAGES of docker-gate (DOCKER_ALLOWED_IMAGES in compose/.env)',
  binds: 'HEADGATE_DOCKER_BINDS of docker-gate (DOCKER_ALLOWED_BINDS in compose/.env)',
  volumes: 'HEADGATE_DOCKER_VOLUMES of docker-gate (DOCKER_ALLOWED_VOLUMES in compose/.env)',
  runImages: 'HEADGATE_DOCKER_RUN_IMAGES of docker-gate (DOCKER_ALLOWED_RUN_IMAGES in compose/.env)',
} as const;

/** What an operator lets containers have beyond what every engine has. */
export interface Policy {
  /** Images that may be pulled, inspected and run: `repository:tag` or `repository@digest`, with `*` for any text. */
  readonly images: readonly string[];
  /** Folders of the machine that may be mounted, each as it is named and nothing in it. */
  readonly binds: readonly AllowedMount[];
  /** Named volumes that may be mounted. */
  readonly volumes: readonly AllowedMount[];
  /** Whether containers may publish ports. */
  readonly allowsPorts: boolean;
  /** Whether the calls of the swarm driver are passed on as well. */
  readonly allowsSwarm: boolean;
  /** Images that runs of stacks may have, and no engine; without any there are no runs. */
  readonly runImages: readonly string[];
  /** Networks beside their own that runs may be in. */
  readonly runNetworks: readonly string[];
}

/** Something that a call names: it must be there and bear a label of ours before the call is passed on. */
export interface Target {
  /** `/v1.41/containers/name`: how a call on it begins. */
  readonly named: string;
  /** Of its inspection. */
  readonly path: string;
  /** One of these. */
  readonly labels: readonly string[];
  /**
   * Where the call names it: there its id is put in place of what the caller wrote, which could mean something else a
   * moment later. In the path, or in the body by the way to it; null: by a name that nothing else can have.
   */
  readonly place: 'path' | readonly (string | number)[] | null;
  /** What the Docker engine says where there is none of this name. */
  readonly absence: string;
  /** A call may be about what is left of one that is gone. */
  readonly mayBeGone?: boolean;
  /** The specification that it must be there with, its `Mode` aside. */
  readonly spec?: Readonly<Record<string, unknown>>;
}

/** What values of a query's parameter may be. */
export type Query = Readonly<Record<string, RegExp>>;

/** A call that is passed on. */
export interface Rule {
  readonly method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE';
  /** Of the path without its version; the group is what `targets` and `check` get. */
  readonly path: RegExp;
  /** None when absent. */
  readonly query?: Query;
  /**
   * Has the engine show only what bears Headgate's label; beside labels it may be asked for these filters. With
   * `network`, the network of an engine, it shows the gateways that joined that network.
   */
  readonly filters?: readonly string[];
  readonly targets?: Targets;
  /** @returns what is wrong */
  readonly check?: (policy: Policy, name: string, query: URLSearchParams) => string | null;
  readonly body?: (policy: Policy, body: unknown) => z.ZodType;
  /** Other things that the body names. */
  readonly bodyTargets?: (body: unknown, prefix: string, name: string) => readonly Target[];
  /** @returns what in the query does not fit the body */
  readonly agree?: (query: URLSearchParams, body: unknown) => string | null;
  readonly passesRegistryAuth?: boolean;
  /** Its body is a tar file, which is made anew from what was read of it. */
  readonly takesArchive?: boolean;
}

/** On everything that Headgate makes in a Docker engine. */
export const managedLabel = 'headgate.managed';
/** On the containers of gateways, which join the networks of their engines. */
export const gatewayLabel = 'headgate.gateway';

/** On the containers and networks of runs, with the run's id; nothing of an engine bears it. */
export const runLabel = 'headgate.run';

export const id = '([a-zA-Z0-9][a-zA-Z0-9_.-]{0,254})';
export const flag = /^(?:true|false|0|1)$/;
export const count = /^\d{1,10}$/;

/** The driver's names: nothing that people or docker compose make is called so. */
export const ownName = /^headgate-[a-z0-9-]{1,64}-[0-9a-f]{10}$/;
/** Of a container that was asked to stop. */
export const stoppingName = /^headgate-[a-z0-9-]{1,64}-[0-9a-f]{10}\.stopping$/;
export const probeName = /^headgate-probe-\d{1,10}-[0-9a-z]{1,12}-\d{1,12}$/;

type Kind = 'container' | 'network' | 'service' | 'secret';

function target(kind: Kind, name: string, prefix: string, labels: readonly string[] = [managedLabel]): Target {
  const named = `${prefix}/${kind}s/${name}`;
  const isContainer = kind === 'container';
  const absence = isContainer ? `No such container: ${name}` : `${kind} ${name} not found`;
  return { named, path: isContainer ? `${named}/json` : named, labels, place: 'path', absence };
}

export type Targets = (name: string, prefix: string) => readonly Target[];

export const container =
  (...labels: readonly string[]): Targets =>
  (name, prefix) => [target('container', name, prefix, labels)];
export const network: Targets = (name, prefix) => [target('network', name, prefix)];
export const service: Targets = (name, prefix) => [target('service', name, prefix)];
export const secret: Targets = (name, prefix) => [target('secret', name, prefix)];
