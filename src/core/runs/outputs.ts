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
  /** Why what was declared is no web port; null where it is one, or none was declared. */
  readonly webProblem: string | null;
}

const outputsSchema = z.record(z.string(), z.object({ sensitive: z.boolean().default(false), value: z.unknown() }));

const portMax = 65_535;
/** One that began with "//" would be another host to a browser, which reads "\\" as "/". */
const pathPattern = /^\/(?![/\\])[\x21-\x7e]{0,499}$/;

export interface OutputContext {
  readonly announced: WebPort | null;
  /** The cluster's nodes. A module names one of them, and never an address. */
  readonly nodes: readonly { readonly name: string; readonly sshPort: number }[];
  /** Of a run for one node its name. */
  readonly ownNode: string;
  readonly mask: Mask;
}

/** Reads `terraform output -json`. An output `web_port`, with `web_node` and `web_path`, outranks what the manifest announces. */
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

/** What `terraform output -json` would print, out of a state as Terraform and OpenTofu write it (version 4). */
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
    return { web: null, webProblem: 'web_port, web_node and web_path are shown: none of them may be a secret' };
  }
  return readWeb(declared, context);
}

/** All of it is right, or there is no web port: what a module says wrongly is not guessed at. */
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
    return problem('web_path must begin with "/", one and no more, and have printable ASCII characters, 500 at most');
  }
  // Of the run's own node the installation knows the name. Any other is named: the first of the cluster may change.
  return { web: { port, node: isNamed || ownNode === '' ? target.name : null, path }, webProblem: null };
}

/** Terraform has numbers, and texts that hold them. */
function readPort(value: unknown): number | null {
  const port = typeof value === 'string' && /^[1-9]\d{0,4}$/.test(value) ? Number(value) : value;
  return typeof port === 'number' && Number.isInteger(port) && port >= 1 && port <= portMax ? port : null;
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
