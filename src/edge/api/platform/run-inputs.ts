import { z } from '@hono/zod-openapi';
import type { ClusterWithNodes } from '#core/clusters/clusters.ts';
import { secretCharsMin } from '#core/runs/runs.ts';
import { fits, type InputValue, type Stack, type StackInput } from '#core/stacks/stacks.ts';
import type { Problem } from '#edge/http/http.ts';

/** Inputs for an apply, with all problems found. */
export interface CheckedInputs {
  /** Inputs with the defaults of the stack's manifest. Terraform fills in the module's own defaults. */
  readonly inputs: Readonly<Record<string, InputValue>>;
  readonly problems: readonly Problem[];
}

/**
 * Accepts any JSON; the input's type decides which values fit. The schema is empty, since the OpenAPI document supports
 * recursive schemas only by name.
 */
const valueSchema = z
  .custom<InputValue>((value) => value !== undefined)
  .openapi({ type: ['string', 'number', 'boolean', 'null', 'array', 'object'], items: {} });

export const inputsSchema = z.record(z.string().max(200), valueSchema);

export function checkInputs({ version }: Stack, given: Readonly<Record<string, InputValue>>): CheckedInputs {
  const declared = version.metadata.inputs;
  const names = new Set(declared.map(({ name }) => name));
  const unknown = Object.keys(given).filter((name) => !names.has(name));
  const known = declared.map(({ name }) => name).join(', ');
  const problems: Problem[] = unknown.map((name) => ({
    field: `inputs.${name}`,
    message: known === '' ? 'is not an input: this stack has none' : `is not an input: this stack has ${known}`,
  }));
  const inputs = new Map<string, InputValue>();
  for (const { name, type, required, default: otherwise, isModuleDefault = false, sensitive } of declared) {
    const value = (Object.hasOwn(given, name) ? given[name] : null) ?? null;
    const field = `inputs.${name}`;
    for (const message of valueProblems(type, value)) problems.push({ field, message });
    if (sensitive && isTooShort(value)) problems.push({ field, message: tooShort });
    if (value === null && required && otherwise === null) problems.push({ field, message: 'is missing' });
    const used = value ?? (isModuleDefault ? null : otherwise);
    if (used !== null) inputs.set(name, used);
  }
  return { inputs: Object.fromEntries(inputs), problems };
}

const tooShort = `is sensitive and must have at least ${secretCharsMin} characters, so that it can be hidden in logs`;

/** True if a secret is too short to hide in logs. An empty value is not a secret. */
function isTooShort(value: InputValue): boolean {
  const text = typeof value === 'number' ? String(value) : value;
  return typeof text === 'string' && text.trim() !== '' && text.trim().length < secretCharsMin;
}

function valueProblems(type: StackInput['type'], value: InputValue): string[] {
  if (value === null) return [];
  return [...(fits(type, value) ? [] : [`must be a ${type}`]), ...(hasLostDigits(value) ? [lostDigits] : [])];
}

const lostDigits = 'contains a number with more digits than JSON can store: send it as a string';

/** True if a value contains a whole number that JSON parsing may have changed. */
function hasLostDigits(value: InputValue): boolean {
  if (typeof value === 'number') return Number.isInteger(value) && !Number.isSafeInteger(value);
  return typeof value === 'object' && value !== null && Object.values(value).some(hasLostDigits);
}

/** @param node name of a node; null is the whole cluster */
export function checkTarget(stack: Stack, cluster: ClusterWithNodes, node: string | null): readonly Problem[] {
  const nodes = node === null ? cluster.nodes : cluster.nodes.filter(({ name }) => name === node);
  if (nodes.length === 0) {
    const names = cluster.nodes.map(({ name }) => name).join(', ');
    const message =
      names === '' ? 'cannot be used: the cluster has no nodes yet' : `must be a node of the cluster: ${names}`;
    return [{ field: node === null ? 'cluster_id' : 'node', message }];
  }
  const { applicableProfiles } = stack.version.metadata;
  if (applicableProfiles === null) return [];
  const others = nodes.filter(({ hardwareProfile }) => !applicableProfiles.includes(hardwareProfile));
  return others.map(({ name, hardwareProfile }) => ({
    field: node === null ? 'cluster_id' : 'node',
    message: `has the node ${name} with the profile ${hardwareProfile}; the stack supports only ${applicableProfiles.join(', ')}`,
  }));
}
