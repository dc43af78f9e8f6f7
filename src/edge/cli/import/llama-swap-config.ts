import { z } from 'zod';
import { FailedError } from '#edge/cli/shell/shell.ts';

/** llama-swap's config.yaml: https://github.com/mostlygeek/llama-swap/blob/main/config.example.yaml */

const model = z.looseObject({
  cmd: z.string().optional(),
  proxy: z.string().optional(),
  name: z.string().optional(),
  aliases: z.array(z.string()).default([]),
  env: z.array(z.string()).default([]),
  ttl: z.number().default(-1),
  checkEndpoint: z.string().optional(),
  useModelName: z.string().optional(),
  capabilities: z
    .looseObject({
      in: z.array(z.string()).default([]),
      reranker: z.boolean().default(false),
      context: z.number().default(0),
    })
    .optional(),
});
export type LlamaSwapModel = z.output<typeof model>;

const group = z.looseObject({
  swap: z.boolean().default(true),
  exclusive: z.boolean().default(true),
  persistent: z.boolean().default(false),
  members: z.array(z.string()).default([]),
});
const groups = z.record(z.string(), group);
export type LlamaSwapGroup = z.output<typeof group>;

export const llamaSwapConfig = z.looseObject({
  healthCheckTimeout: z.number().default(120),
  globalTTL: z.number().default(0),
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

type Scalars = Readonly<Record<string, unknown>>;
type Members = Readonly<Record<string, unknown>>;

/**
 * Replaces `${name}` by macros in every value, as llama-swap does; macros of a model apply in that model only. Other
 * placeholders (`${PORT}`, `${env.NAME}`) stay.
 * @param value the parsed YAML; a value of another shape is returned unchanged
 * @throws FailedError for macros that never end
 */
export function resolveMacros(value: unknown): unknown {
  if (!isMap(value)) return value;
  const { macros, models, ...rest } = value;
  const known = scalarsOf(macros);
  const resolved = expand(rest, known) as Members;
  return { ...resolved, ...(models !== undefined && { models: resolveModels(models, known) }) };
}

function resolveModels(models: unknown, known: Scalars): unknown {
  if (!isMap(models)) return models;
  return Object.fromEntries(
    Object.entries(models).map(([id, model]) => {
      if (!isMap(model)) return [id, model];
      const { macros, cmd, ...rest } = model;
      // A macro of several lines would end a comment that contains the macro.
      const command = typeof cmd === 'string' ? { cmd: withoutComments(cmd) } : cmd === undefined ? {} : { cmd };
      return [id, expand({ ...command, ...rest }, { ...known, ...scalarsOf(macros), MODEL_ID: id })];
    }),
  );
}

function isMap(value: unknown): value is Members {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function scalarsOf(value: unknown): Scalars {
  if (!isMap(value)) return {};
  return Object.fromEntries(Object.entries(value).filter(([, member]) => !isMap(member) && !Array.isArray(member)));
}

const depthMax = 10;
/** Longest expanded text, in characters: nested macros grow fast. */
const textCharsMax = 1_048_576;

function expand(value: unknown, known: Scalars): unknown {
  if (typeof value === 'string') return expandText(value, known);
  if (Array.isArray(value)) return value.map((item: unknown) => expand(item, known));
  if (!isMap(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, expand(member, known)]));
}

/** Expands macros in a text. A text that is exactly one macro gets that macro's type. */
function expandText(text: string, known: Scalars): unknown {
  let expanded = text;
  for (let depth = 0; depth < depthMax; depth += 1) {
    const alone = /^\$\{([A-Za-z0-9_-]+)\}$/.exec(expanded)?.[1];
    const value = alone !== undefined && Object.hasOwn(known, alone) ? known[alone] : undefined;
    if (value !== undefined && typeof value !== 'string') return value;
    const next = expanded.replace(/\$\{([A-Za-z0-9_-]+)\}/g, (whole, name: string) =>
      Object.hasOwn(known, name) ? String(known[name]) : whole,
    );
    if (next === expanded) break;
    if (next.length > textCharsMax) {
      throw new FailedError(`its macros make a text longer than ${textCharsMax} characters`);
    }
    expanded = next;
  }
  return expanded;
}

/** Removes comments from a command of several lines. */
function withoutComments(command: string): string {
  return command
    .split('\n')
    .filter((line) => !line.trim().startsWith('#'))
    .join('\n');
}

/** Matches `${env.NAME}`, a reference to an environment variable. */
export const environmentMacro = /\$\{env\.([A-Za-z_][A-Za-z0-9_]*)\}/g;
