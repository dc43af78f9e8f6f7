import { z } from 'zod';
import { masked, type Mask } from './mask.ts';
import type { WebPort } from './sources.ts';

/** Maximum length of a run's shown values as JSON; values beyond it are not shown. */
const outputsCharsMax = 262_144;

/** An output as the API shows it: without its value if the module marks it as sensitive, or if it is too large. */
export interface RunOutput {
  readonly sensitive: boolean;
  readonly value?: unknown;
}

export interface RunResult {
  readonly outputs: Readonly<Record<string, RunOutput>>;
  readonly web: WebPort | null;
  /** The reason why the declared web port is invalid; null if it is valid, or if none is declared. */
  readonly webProblem: string | null;
}

const outputsSchema = z.record(z.string(), z.object({ sensitive: z.boolean().default(false), value: z.unknown() }));

const portMax = 65_535;
/** A path that began with "//" would be another host to a browser, which reads "\\" as "/". */
const pathPattern = /^\/(?![/\\])[\x21-\x7e]{0,499}$/;

export interface OutputContext {
  readonly announced: WebPort | null;
  /** The cluster's nodes. A module names one of them, never an address. */
  readonly nodes: readonly { readonly name: string; readonly sshPort: number }[];
  /** Name of the node of a run for one node; empty for the whole cluster. */
  readonly ownNode: string;
  readonly mask: Mask;
}

/**
 * Reads `terraform output -json`. The output `web_port`, with `web_node` and `web_path`, overrides the manifest's web
 * port.
 */
export function readOutputs(text: string, context: OutputContext): RunResult {
  const { mask } = context;
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
  return { outputs, ...declaredWeb(all, context) };
}

/** Returns what `terraform output -json` would print, from a state of Terraform and OpenTofu (version 4). */
export function outputsOf(state: Buffer): string {
  const { outputs } = z
    .object({ outputs: outputsSchema.catch({}) })
    .catch({ outputs: {} })
    .parse(parse(state.toString('utf8')));
  return JSON.stringify(outputs);
}

type Values = Readonly<Record<string, { readonly sensitive: boolean; readonly value: unknown }>>;

function declaredWeb(all: Values, context: OutputContext): Pick<RunResult, 'web' | 'webProblem'> {
  const { announced, mask } = context;
  const [port, node, path] = ['web_port', 'web_node', 'web_path'].map((name) => all[name]?.value ?? null);
  const declared = port === null ? announced : { port, node: node ?? null, path: path ?? '/' };
  if (declared === null) return { web: null, webProblem: null };
  const isSecret = ['web_port', 'web_node', 'web_path'].some((name) => all[name]?.sensitive === true);
  if (isSecret || (typeof declared.path === 'string' && mask(declared.path) !== declared.path)) {
    return { web: null, webProblem: 'web_port, web_node and web_path are displayed and must not be sensitive' };
  }
  return readWeb(declared, context);
}

/** Returns a web port only if all of its parts are valid: nothing is guessed. */
function readWeb(
  { port: said, node, path }: { readonly port: unknown; readonly node: unknown; readonly path: unknown },
  { nodes, ownNode }: OutputContext,
): Pick<RunResult, 'web' | 'webProblem'> {
  const problem = (webProblem: string) => ({ web: null, webProblem });
  const port = readPort(said);
  if (port === null) return problem(`web_port must be a whole number from 1 to ${portMax}`);
  const isNamed = typeof node === 'string';
  const target = isNamed || ownNode !== '' ? nodes.find(({ name }) => name === (node ?? ownNode)) : nodes[0];
  if ((node !== null && !isNamed) || target === undefined) {
    return problem('web_node must be the name of a node of the cluster');
  }
  if (target.sshPort === port) return problem("web_port is the port of the node's SSH server");
  if (typeof path !== 'string' || !pathPattern.test(path)) {
    return problem('web_path must begin with exactly one "/" and have at most 500 printable ASCII characters');
  }
  // A run for one node keeps null, because the installation knows its node. Otherwise the node is named, as the first
  // node may change.
  return { web: { port, node: isNamed || ownNode === '' ? target.name : null, path }, webProblem: null };
}

/** Accepts numbers, and texts that contain one. */
function readPort(value: unknown): number | null {
  const port = typeof value === 'string' && /^[1-9]\d{0,4}$/.test(value) ? Number(value) : value;
  return typeof port === 'number' && Number.isInteger(port) && port >= 1 && port <= portMax ? port : null;
}

/** Escapes of JSON, one by one. */
const escapes = /\\(?:u0000|ud[89a-f][0-9a-f]{2}|[^])/g;
const unstorable = /^\\u(?:0000|d)/;

/**
 * Returns a value as JSON, without secrets, NUL and lone surrogates, which PostgreSQL cannot store. Null: nested too
 * deeply.
 */
export function shownText(value: unknown, mask: Mask): string | null {
  try {
    const text = JSON.stringify(withoutSecrets(value ?? null, mask));
    return text.replaceAll(escapes, (found) => (unstorable.test(found) ? '' : found));
  } catch {
    return null;
  }
}

/** Masks each text, number and key by itself: in JSON, a secret may touch an escape or contain quotes. */
function withoutSecrets(value: unknown, mask: Mask): unknown {
  if (typeof value === 'string') return mask(value);
  if (typeof value === 'number') return mask(String(value)) === String(value) ? value : masked;
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((one) => withoutSecrets(one, mask));
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [mask(key), withoutSecrets(one, mask)]));
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
