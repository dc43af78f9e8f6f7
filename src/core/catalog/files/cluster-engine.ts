import { z } from 'zod';
import type { EngineText } from './engine-files.ts';

/** An engine that a run has started on a node of a cluster, as the output `engine` of its module describes it. */
export interface ClusterEngine {
  /** Text for operators that names the run and its stack, in place of a file's name. */
  readonly file: string;
  /** The output: fields of an engine file, with `port` and `node` in place of an address. Not checked yet. */
  readonly engine: unknown;
  /** Nodes of the cluster, in the order in which they were added. */
  readonly nodes: readonly { readonly name: string; readonly address: string }[];
  /** The run's own node; empty for the whole cluster. */
  readonly node: string;
  /** Variable with the API key of the cluster's engines. */
  readonly apiKeyEnv: string;
  readonly apiKey: string;
}

const outputSchema = z.looseObject({
  port: z
    .union([
      z.number(),
      z
        .string()
        .regex(/^\d{1,5}$/)
        .transform(Number),
    ])
    .pipe(z.int().min(1).max(65_535)),
  node: z.string().nullish(),
});

const outputRule =
  'the output engine must be an object with a port from 1 to 65535 and the fields of an engine file, and not sensitive';

/** Returns the engine's file; with `problem` if the output cannot become one. */
export function clusterEngineText(declared: ClusterEngine): EngineText {
  const { file, nodes, node: ownNode, apiKeyEnv, apiKey } = declared;
  const parsed = outputSchema.safeParse(declared.engine);
  if (!parsed.success) return { file, text: '', env: {}, problem: outputRule };
  const { port, node: named, ...fields } = parsed.data;
  const wanted = named ?? ownNode;
  const node = wanted === '' ? nodes[0] : nodes.find(({ name }) => name === wanted);
  if (node === undefined) {
    const problem = `the cluster has no node ${JSON.stringify(wanted)}`;
    return { file, text: '', env: {}, problem };
  }
  const host = node.address.includes(':') ? `[${node.address}]` : node.address;
  const address = { driver: 'external', url: `http://${host}:${port}`, api_key_env: apiKeyEnv };
  // YAML reads JSON. Terraform's objects have null for attributes without a value.
  const text = JSON.stringify({ version: 1, name: fields['id'], ...fields, ...address }, (_, value: unknown) =>
    value === null ? undefined : value,
  );
  return { file, text, env: { [apiKeyEnv]: apiKey }, problem: null };
}
