import type { z } from 'zod';
import type { AllowedMount } from '#base/host-folder.ts';

/**
 * Settings with which an operator writes each list: the gate's own variable, and the variable in compose's `.env` that
 * sets it.
 */
export const settingNames = {
  images: 'HEADGATE_DOCKER_IMAGES of docker-gate (DOCKER_ALLOWED_IMAGES in compose/.env)',
  binds: 'HEADGATE_DOCKER_BINDS of docker-gate (DOCKER_ALLOWED_BINDS in compose/.env)',
  volumes: 'HEADGATE_DOCKER_VOLUMES of docker-gate (DOCKER_ALLOWED_VOLUMES in compose/.env)',
  runImages: 'HEADGATE_DOCKER_RUN_IMAGES of docker-gate (DOCKER_ALLOWED_RUN_IMAGES in compose/.env)',
} as const;

/** Permissions that an operator gives containers beyond those of every engine. */
export interface Policy {
  /** Images that may be pulled, inspected and run: `repository:tag` or `repository@digest`, with `*` for any text. */
  readonly images: readonly string[];
  /** Folders of the machine that may be mounted. Folders inside them may not. */
  readonly binds: readonly AllowedMount[];
  /** Named volumes that may be mounted. */
  readonly volumes: readonly AllowedMount[];
  /** True if containers may publish ports. */
  readonly allowsPorts: boolean;
  /** True if calls of the swarm driver are passed on as well. */
  readonly allowsSwarm: boolean;
  /** Images that only runs of stacks may use. If empty, there are no runs. */
  readonly runImages: readonly string[];
  /** Networks that runs may join, besides their own. */
  readonly runNetworks: readonly string[];
}

/** An object that a call names. It must exist and have a label of Headgate before the call is passed on. */
export interface Target {
  /** Path prefix of calls on the object, such as `/v1.41/containers/name`. */
  readonly named: string;
  /** Path of its inspection. */
  readonly path: string;
  /** Labels, of which the object needs one. */
  readonly labels: readonly string[];
  /**
   * Place of the name in the call. The id replaces the name there, because the name could mean another object a moment
   * later. Either the path, or the way to a member of the body. Null if nothing else can have the name.
   */
  readonly place: 'path' | readonly (string | number)[] | null;
  /** The Docker engine's message if the object does not exist. */
  readonly absence: string;
  /** True if the call may name a deleted object, to clean up after it. */
  readonly mayBeDeleted?: boolean;
  /** The specification that the object must have, except for its `Mode`. */
  readonly spec?: Readonly<Record<string, unknown>>;
}

/** Patterns of the values of query parameters. */
export type Query = Readonly<Record<string, RegExp>>;

/** An allowed call. */
export interface Rule {
  readonly method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE';
  /** Pattern of the path without its version. `targets` and `check` get its group. */
  readonly path: RegExp;
  /** Absent if the call has no parameters. */
  readonly query?: Query;
  /**
   * Filters that are allowed besides labels. The call is limited to objects with Headgate's label. With `network`, the
   * network of an engine, it is limited to the gateways that joined that network.
   */
  readonly filters?: readonly string[];
  readonly targets?: Targets;
  /** @returns the problem, or null */
  readonly check?: (policy: Policy, name: string, query: URLSearchParams) => string | null;
  readonly body?: (policy: Policy, body: unknown) => z.ZodType;
  /** Other objects that the body names. */
  readonly bodyTargets?: (body: unknown, prefix: string, name: string) => readonly Target[];
  /** @returns the contradiction between query and body, or null */
  readonly agree?: (query: URLSearchParams, body: unknown) => string | null;
  readonly passesRegistryAuth?: boolean;
  /** True if the body is a tar file, which is rebuilt from its parsed files. */
  readonly takesArchive?: boolean;
}

/** Label of everything that Headgate creates in a Docker engine. */
export const managedLabel = 'headgate.managed';
/** Label of gateway containers, which join the networks of their engines. */
export const gatewayLabel = 'headgate.gateway';

/** Label of the containers and networks of runs, with the run's id. Nothing of an engine has this label. */
export const runLabel = 'headgate.run';

export const id = '([a-zA-Z0-9][a-zA-Z0-9_.-]{0,254})';
export const flag = /^(?:true|false|0|1)$/;
export const count = /^\d{1,10}$/;

/** Names that the driver gives. People and docker compose do not create such names. */
export const ownName = /^headgate-[a-z0-9-]{1,64}-[0-9a-f]{10}$/;
/** Name of a container that was asked to stop. */
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
