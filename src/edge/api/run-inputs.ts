import { z } from '@hono/zod-openapi';
import type { ClusterWithNodes } from '#core/clusters/clusters.ts';
import { secretCharsMin } from '#core/runs/runs.ts';
import { fits, type InputValue, type Stack, type StackInput } from '#core/stacks/stacks.ts';
import type { Problem } from '#edge/http/http.ts';

/** Everything that is wrong with what a stack is to be applied with. */
export interface CheckedInputs {
  /** With the defaults of the stack's manifest. Terraform fills in those of the module by itself. */
  readonly inputs: Readonly<Record<string, InputValue>>;
  readonly problems: readonly Problem[];
}

/** Any JSON: what fits is said by the input's type. An empty schema, since the document knows no recursive ones without a name. */
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
    message: known === '' ? 'is not known: this stack has no inputs' : `is not known: this stack has ${known}`,
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

const tooShort = `is sensitive and has fewer than ${secretCharsMin} characters: logs cannot hide it without hiding half of what they say`;

/** Nothing at all is no secret. */
function isTooShort(value: InputValue): boolean {
  const text = typeof value === 'number' ? String(value) : value;
  return typeof text === 'string' && text.trim() !== '' && text.trim().length < secretCharsMin;
}

function valueProblems(type: StackInput['type'], value: InputValue): string[] {
  if (value === null) return [];
  return [...(fits(type, value) ? [] : [`must be a ${type}`]), ...(hasLostDigits(value) ? [lostDigits] : [])];
}

const lostDigits = 'has a number with more digits than JSON numbers keep: send that number as a string';

/** Returns whether a value has a whole number that may not be the one that was sent. */
function hasLostDigits(value: InputValue): boolean {
  if (typeof value === 'number') return Number.isInteger(value) && !Number.isSafeInteger(value);
  return typeof value === 'object' && value !== null && Object.values(value).some(hasLostDigits);
}

/** @param node a node's name; null: the whole cluster */
export function checkTarget(stack: Stack, cluster: ClusterWithNodes, node: string | null): readonly Problem[] {
  const nodes = node === null ? cluster.nodes : cluster.nodes.filter(({ name }) => name === node);
  if (nodes.length === 0) {
    const names = cluster.nodes.map(({ name }) => name).join(', ');
    const message =
      names === '' ? 'cannot be chosen: the cluster has no nodes yet' : `is none of the cluster's nodes: ${names}`;
    return [{ field: node === null ? 'cluster_id' : 'node', message }];
  }
  const { applicableProfiles } = stack.version.metadata;
  if (applicableProfiles === null) return [];
  const others = nodes.filter(({ hardwareProfile }) => !applicableProfiles.includes(hardwareProfile));
  return others.map(({ name, hardwareProfile }) => ({
    field: node === null ? 'cluster_id' : 'node',
    message: `has the node ${name} of profile ${hardwareProfile}; the stack is for ${applicableProfiles.join(', ')}`,
  }));
}
