import { z } from 'zod';
import type { Mask } from './mask.ts';
import type { WebPort } from './sources.ts';

/** Of the values of a run as JSON; what goes beyond is not shown. */
const outputsCharsMax = 262_144;

/** An output as it is shown: without its value where the module calls it sensitive, or where it is too large. */
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
  let chars = 0;
  const outputs = Object.fromEntries(
    Object.entries(all).map(([name, { sensitive, value }]): [string, RunOutput] => {
      const text = sensitive ? null : shownText(value, mask);
      if (text === null || chars + text.length > outputsCharsMax) return [name, { sensitive }];
      chars += text.length;
      return [name, { sensitive, value: parse(text) }];
    }),
  );
  const port = portSchema.safeParse(all['web_port']?.value);
  const path = pathSchema.safeParse(all['web_path']?.value);
  const node = all['web_node']?.value;
  const isNode = typeof node === 'string' && nodes.includes(node);
  if (!port.success) return { outputs, web: announced };
  return { outputs, web: { port: port.data, node: isNode ? node : null, path: path.success ? path.data : '/' } };
}

/** Escapes of JSON, one after the other. */
const escapes = /\\(?:u0000|ud[89a-f][0-9a-f]{2}|[^])/g;
const unstorable = /^\\u(?:0000|d)/;

/** A value as JSON, without secrets, NUL and halves of characters, which PostgreSQL has no text for. Null: it is nested too deeply. */
function shownText(value: unknown, mask: Mask): string | null {
  try {
    return mask(JSON.stringify(value ?? null)).replaceAll(escapes, (found) => (unstorable.test(found) ? '' : found));
  } catch {
    return null;
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
