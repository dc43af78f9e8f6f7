import { z } from 'zod';
import type { Mask } from './mask.ts';
import type { WebPort } from './sources.ts';

/** An output as it is shown: without its value where the module calls it sensitive. */
export interface RunOutput {
  readonly sensitive: boolean;
  readonly value?: unknown;
}

export interface RunResult {
  readonly outputs: Readonly<Record<string, RunOutput>>;
  readonly web: WebPort | null;
}

const outputsSchema = z.record(z.string(), z.object({ sensitive: z.boolean().default(false), value: z.unknown() }));

const portSchema = z.coerce.number().int().min(1).max(65_535);
const pathSchema = z
  .string()
  .regex(/^\/[\x21-\x7e]*$/)
  .max(500);

export interface OutputContext {
  readonly announced: WebPort | null;
  /** Names of the cluster's nodes. A module names one of them, and never an address. */
  readonly nodes: readonly string[];
  readonly mask: Mask;
}

/** Reads `terraform output -json`. An output `web_port`, with `web_node` and `web_path`, outranks what the manifest announces. */
export function readOutputs(text: string, { announced, nodes, mask }: OutputContext): RunResult {
  const parsed = outputsSchema.safeParse(parse(text));
  const all = parsed.success ? parsed.data : {};
  const outputs = Object.fromEntries(
    Object.entries(all).map(([name, { sensitive, value }]): [string, RunOutput] => [
      name,
      sensitive ? { sensitive } : { sensitive, value: parse(mask(JSON.stringify(value ?? null))) },
    ]),
  );
  const port = portSchema.safeParse(all['web_port']?.value);
  const path = pathSchema.safeParse(all['web_path']?.value);
  const node = all['web_node']?.value;
  const isNode = typeof node === 'string' && nodes.includes(node);
  if (!port.success) return { outputs, web: announced };
  return { outputs, web: { port: port.data, node: isNode ? node : null, path: path.success ? path.data : '/' } };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
