import { createHash, createHmac } from 'node:crypto';
import { z } from 'zod';
import type { Placement } from '#core/fleet/drivers/driver.ts';
import type { Replica } from '#core/fleet/drivers/replica.ts';

/** Labels of containers, by which every gateway recognizes them without other state. */

export const labels = {
  managed: 'headgate.managed',
  fleet: 'headgate.fleet',
  engine: 'headgate.engine',
  replica: 'headgate.replica',
  spec: 'headgate.spec',
  epoch: 'headgate.epoch',
  gpus: 'headgate.gpus',
  kind: 'headgate.kind',
  port: 'headgate.port',
  forcedUsage: 'headgate.forced-usage',
  /** Set on short-lived containers that read the state of GPUs. */
  probe: 'headgate.probe',
} as const;

/** The fields of a `Replica` that its container's labels have; the address comes from the container itself. */
export interface Marks {
  readonly replicaId: string;
  readonly engineId: string;
  readonly specHash: string;
  readonly epoch: bigint | null;
  readonly gpuIds: readonly string[];
  readonly kind: Replica['kind'];
  /** Port inside the container. */
  readonly port: number;
  readonly forcedUsage: boolean;
}

const marksSchema = z.object({
  [labels.replica]: z.string().min(1),
  [labels.engine]: z.string().min(1),
  [labels.spec]: z.string(),
  [labels.epoch]: z.string().regex(/^\d{1,30}$/),
  [labels.gpus]: z.string(),
  [labels.kind]: z.enum(['vllm', 'openai']),
  [labels.port]: z.string().regex(/^\d{1,5}$/),
  [labels.forcedUsage]: z.enum(['true', 'false']),
});

export function labelsOf(fleetId: string, marks: Marks): Record<string, string> {
  return {
    [labels.managed]: 'true',
    [labels.fleet]: fleetId,
    [labels.replica]: marks.replicaId,
    [labels.engine]: marks.engineId,
    [labels.spec]: marks.specHash,
    [labels.epoch]: String(marks.epoch ?? 0n),
    [labels.gpus]: JSON.stringify(marks.gpuIds),
    [labels.kind]: marks.kind,
    [labels.port]: String(marks.port),
    [labels.forcedUsage]: String(marks.forcedUsage),
  };
}

/** Returns null if the labels are not complete and valid, so not ours. */
export function readMarks(found: Readonly<Record<string, string>>): Marks | null {
  const parsed = marksSchema.safeParse(found);
  if (!parsed.success) return null;
  const gpuIds = readGpuIds(parsed.data[labels.gpus]);
  if (gpuIds === null) return null;
  return {
    replicaId: parsed.data[labels.replica],
    engineId: parsed.data[labels.engine],
    specHash: parsed.data[labels.spec],
    epoch: BigInt(parsed.data[labels.epoch]),
    gpuIds,
    kind: parsed.data[labels.kind],
    port: Number(parsed.data[labels.port]),
    forcedUsage: parsed.data[labels.forcedUsage] === 'true',
  };
}

/** Parses the label `gpus`; null if it is not ours. */
export function readGpuIds(text: string): Placement['gpuIds'] | null {
  try {
    const parsed = z.array(z.string()).safeParse(JSON.parse(text));
    return parsed.success ? parsed.data : null;
  } catch {
    return null;
  }
}

/**
 * Suffix of the name of a container whose stop was requested. Labels cannot be changed, and a later gateway must know
 * that the end was requested.
 */
const stoppingSuffix = '.stopping';

/** Returns `headgate-<engine>-<key>`: readable, and unique per replica and fleet. */
export function containerName(fleetId: string, engineId: string, replicaId: string): string {
  return `headgate-${slugOf(engineId)}-${keyOf(`${fleetId}\n${replicaId}`)}`;
}

export function stoppingName(name: string): string {
  return `${name}${stoppingSuffix}`;
}

export function isStoppingName(name: string): boolean {
  return name.endsWith(stoppingSuffix);
}

export function networkName(fleetId: string, engineId: string): string {
  return `headgate-${slugOf(engineId)}-${keyOf(`${fleetId}\n${engineId}`)}`;
}

function slugOf(engineId: string): string {
  const slug = engineId.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-');
  return slug.slice(0, 40).replaceAll(/^-+|-+$/g, '') || 'engine';
}

function keyOf(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 10);
}

/**
 * Returns the key that a replica requires. Every gateway of the fleet can compute it, so it is not stored; each replica
 * has its own.
 */
export function apiKeyOf(fleetSecret: string, replicaId: string): string {
  return `hg-${createHmac('sha256', fleetSecret).update(`replica ${replicaId}`).digest('base64url')}`;
}
