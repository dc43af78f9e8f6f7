import { z } from 'zod';

/** llama-swap's config.yaml: https://github.com/mostlygeek/llama-swap/blob/main/config.example.yaml */

const macros = z.record(z.string(), z.union([z.string(), z.number(), z.boolean()]));

const model = z.looseObject({
  cmd: z.string().optional(),
  proxy: z.string().optional(),
  name: z.string().optional(),
  aliases: z.array(z.string()).default([]),
  env: z.array(z.string()).default([]),
  ttl: z.number().default(-1),
  macros: macros.default({}),
  checkEndpoint: z.string().optional(),
  concurrencyLimit: z.number().default(0),
  useModelName: z.string().optional(),
  unlisted: z.boolean().default(false),
  filters: z.looseObject({}).optional(),
  capabilities: z
    .looseObject({
      in: z.array(z.string()).default([]),
      reranker: z.boolean().default(false),
      context: z.number().default(0),
    })
    .optional(),
});
export type LlamaSwapModel = z.output<typeof model>;

const groups = z.record(
  z.string(),
  z.looseObject({ persistent: z.boolean().default(false), members: z.array(z.string()).default([]) }),
);

export const llamaSwapConfig = z.looseObject({
  healthCheckTimeout: z.number().default(120),
  globalTTL: z.number().default(0),
  macros: macros.default({}),
  models: z.record(z.string(), model).default({}),
  groups: groups.optional(),
  routing: z
    .looseObject({
      router: z.looseObject({ settings: z.looseObject({ groups: groups.optional() }).optional() }).optional(),
    })
    .optional(),
  hooks: z
    .looseObject({ on_startup: z.looseObject({ preload: z.array(z.string()).default([]) }).optional() })
    .optional(),
  peers: z
    .record(
      z.string(),
      z.looseObject({ proxy: z.string(), apiKey: z.string().optional(), models: z.array(z.string()) }),
    )
    .default({}),
});
export type LlamaSwapConfig = z.output<typeof llamaSwapConfig>;

const depthMax = 10;

/** Puts macros in place of `${name}`; what is none (`${PORT}`, `${env.NAME}`) stays as it is. */
export function expandMacros(text: string, config: LlamaSwapConfig, id: string, own: LlamaSwapModel): string {
  const known: Readonly<Record<string, unknown>> = { ...config.macros, ...own.macros, MODEL_ID: id };
  let expanded = text;
  for (let depth = 0; depth < depthMax; depth += 1) {
    const next = expanded.replace(/\$\{([A-Za-z0-9_-]+)\}/g, (whole, name: string) =>
      name in known ? String(known[name]) : whole,
    );
    if (next === expanded) break;
    expanded = next;
  }
  return expanded;
}

/** A command of several lines without its comments. */
export function withoutComments(command: string): string {
  return command
    .split('\n')
    .filter((line) => !line.trim().startsWith('#'))
    .join('\n');
}

/** `${env.NAME}`, which stands for a variable of the environment. */
export const environmentMacro = /\$\{env\.([A-Za-z_][A-Za-z0-9_]*)\}/g;
