import { once } from 'node:events';
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { json } from 'node:stream/consumers';
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import type { DockerCall } from './calls.ts';
import { managedLabel, type Target } from './rule.ts';

/** Inspects the objects that a call names before the call is passed on. */

const inspectTimeoutMs = 10_000;

/** An object that a call names, as the Docker engine shows it. */
export interface Inspected {
  readonly id: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Specification of a service or secret. */
  readonly spec: object;
  /** State of a container. */
  readonly state: string;
  /** Networks of a container, by name. */
  readonly networks: Readonly<Record<string, unknown>>;
}

/** An answer for a call that is not passed on, in the Docker engine's format. */
export interface Stop {
  readonly status: number;
  readonly message: string;
}

export type Resolved = { readonly call: DockerCall; readonly found: readonly (Inspected | null)[] } | Stop;

/**
 * Returns the call with ids in place of names, if all named objects exist and belong to Headgate.
 * @throws if the Docker engine does not answer
 */
export async function resolveTargets(socketPath: string, call: DockerCall): Promise<Resolved> {
  let resolved = call;
  const all: (Inspected | null)[] = [];
  for (const target of call.targets) {
    const found = await inspect(socketPath, target.path);
    if (found !== null && 'message' in found) return found;
    if (found === null && target.mayBeDeleted !== true) return { status: 404, message: target.absence };
    const problem = found === null ? null : problemOf(target, found);
    if (problem !== null) return { status: 403, message: problem };
    if (found !== null) resolved = withId(resolved, target, found.id);
    all.push(found);
  }
  return { call: resolved, found: all };
}

/** Returns the reason to reject a call on an object, or null. */
function problemOf({ labels, spec }: Target, found: Inspected): string | null {
  if (!labels.some((label) => Object.hasOwn(found.labels, label)))
    return `Headgate did not create this object: it lacks the label ${labels.join(' or ')}.`;
  if (spec === undefined || isSameBesideMode(spec, found.spec)) return null;
  return 'Only the number of tasks of a service may change.';
}

function isSameBesideMode(spec: object, other: object): boolean {
  return isDeepStrictEqual({ ...spec, Mode: null }, { ...other, Mode: null });
}

/** Puts the id into the call. @param target the object whose name the id replaces */
function withId(call: DockerCall, { named, place }: Target, id: string): DockerCall {
  if (place === null) return call;
  if (place !== 'path') {
    const body: unknown = JSON.parse(call.body ?? 'null');
    return { ...call, body: JSON.stringify(withMember(body, place, id)) };
  }
  if (!call.path.startsWith(named)) throw new Error('A call does not name its target.');
  return { ...call, path: `${named.slice(0, named.lastIndexOf('/'))}/${id}${call.path.slice(named.length)}` };
}

function withMember(value: unknown, [key, ...rest]: readonly (string | number)[], id: string): unknown {
  if (key === undefined) return id;
  if (Array.isArray(value)) {
    const items: readonly unknown[] = value;
    return items.map((item, index) => (index === key ? withMember(item, rest, id) : item));
  }
  const members = value as Readonly<Record<string, unknown>>;
  return { ...members, [key]: withMember(members[key], rest, id) };
}

/**
 * Returns the only fields that a gateway may read of a gateway's container. The full inspection has secrets, and two
 * installations may share one Docker engine.
 */
export function gatewayAnswer({ id, labels, state, networks }: Inspected): object | null {
  if (Object.hasOwn(labels, managedLabel)) return null;
  const Networks = Object.fromEntries(Object.keys(networks).map((name) => [name, {}]));
  return { Id: id, State: { Status: state }, NetworkSettings: { Networks } };
}

const labels = z.record(z.string(), z.string()).nullish();
const inspection = z
  .object({
    Id: z.string().optional(),
    ID: z.string().optional(),
    Labels: labels,
    Config: z.object({ Labels: labels }).nullish(),
    Spec: z.looseObject({ Labels: labels }).optional(),
    State: z.object({ Status: z.string() }).optional(),
    NetworkSettings: z.object({ Networks: z.record(z.string(), z.unknown()).nullish() }).optional(),
  })
  .transform(({ Id, ID: id = Id ?? '', Config: config, Labels: own, Spec: spec, ...rest }): Inspected => ({
    id,
    labels: config?.Labels ?? own ?? spec?.Labels ?? {},
    spec: spec ?? {},
    state: rest.State?.Status ?? '',
    networks: rest.NetworkSettings?.Networks ?? {},
  }))
  .refine(({ id }) => /^[a-z0-9]+$/.test(id), 'no id');
const failure = z
  .object({ message: z.string() })
  .catch({ message: 'The Docker engine returned an error without a message.' });

/** Inspects an object. Returns null if there is none, or the Docker engine's own answer if the inspection fails. */
async function inspect(socketPath: string, path: string): Promise<Inspected | Stop | null> {
  const asked = httpRequest({ socketPath, path, agent: false, timeout: inspectTimeoutMs });
  asked.on('timeout', () => asked.destroy(new Error('The Docker engine did not answer in time.')));
  asked.end();
  const [answer] = (await once(asked, 'response')) as [IncomingMessage];
  const { statusCode: status = 0 } = answer;
  const found: unknown = await json(answer);
  if (status === 404) return null;
  // For example several networks of this name, or an API version that the engine does not support.
  if (status !== 200) return { status, ...failure.parse(found) };
  return inspection.parse(found);
}
