import { z } from 'zod';

/**
 * A provider that a module, or a module that it calls in the package, requires. Modules fetched from elsewhere may
 * require others.
 */
export interface StackProvider {
  /** Source such as `hashicorp/aws`, after a registry's host if the module names one. */
  readonly source: string;
  /** Version constraint, such as `>= 1.0`; null if there is none. */
  readonly version: string | null;
}

/** Returns a block's bodies: HCL's JSON has a list, Terraform's own JSON may have the body itself. */
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : [value]);
const record = z.record(z.string(), z.unknown()).catch({});
const settings = z.object({ required_providers: z.unknown().optional() }).catch({});
const requirement = z
  .union([
    z.object({ source: z.string().optional(), version: z.string().optional() }),
    z.string().transform((version) => ({ version, source: undefined })),
  ])
  .catch({});
const body = z.object({ provider: z.string().optional() }).catch({});

const sourcePattern = /^(?:[\w.-]+(?::\d+)?\/)?[\w-]+\/[\w-]+$/;
const namePattern = /^[\w-]+$/;
const providersMax = 50;
const versionCharsMax = 200;
/** Provider that is part of Terraform itself. */
const builtin = 'terraform';

/**
 * Joins the providers of several modules: Terraform uses one version of each provider, which all modules must allow.
 */
export function joinProviders(modules: readonly (readonly StackProvider[])[]): readonly StackProvider[] {
  const bySource = Map.groupBy(modules.flat(), ({ source }) => source);
  return [...bySource]
    .map(([source, needed]): StackProvider => {
      const versions = [...new Set(needed.flatMap(({ version }) => version ?? []))];
      return { source, version: versions.length === 0 ? null : versions.join(', ').slice(0, versionCharsMax) };
    })
    .toSorted((a, b) => (a.source < b.source ? -1 : 1))
    .slice(0, providersMax);
}

/** @param contents of the files of one module, in HCL's JSON */
export function findProviders(contents: readonly unknown[]): readonly StackProvider[] {
  const declared = new Map<string, { source?: string | undefined; version?: string | undefined }>();
  const used = new Set<string>();
  for (const content of contents.map((one) => record.parse(one))) {
    const blocks = list(content['terraform']).flatMap((terraform) =>
      list(settings.parse(terraform).required_providers),
    );
    for (const [name, value] of blocks.flatMap((block) => Object.entries(record.parse(block)))) {
      declared.set(name, requirement.parse(value));
    }
    for (const name of Object.keys(record.parse(content['provider']))) used.add(name);
    for (const kind of ['resource', 'data', 'ephemeral']) for (const name of usedBy(content[kind])) used.add(name);
  }
  const found = [...new Set([...declared.keys(), ...used])]
    .filter((name) => name !== builtin && namePattern.test(name))
    .map((name): StackProvider => {
      const { source, version = null } = declared.get(name) ?? {};
      return {
        source: (source ?? `hashicorp/${name}`).toLowerCase(),
        version: version?.slice(0, versionCharsMax) ?? null,
      };
    });
  return found
    .filter(({ source }) => sourcePattern.test(source) && !source.startsWith('terraform.io/builtin/'))
    .toSorted((a, b) => (a.source < b.source ? -1 : 1))
    .slice(0, providersMax);
}

/** Returns the local names of resources' providers: the named provider, or the start of the resource's type. */
function usedBy(kinds: unknown): string[] {
  return Object.entries(record.parse(kinds)).flatMap(([type, ofType]) =>
    list(ofType)
      .flatMap((names) => Object.values(record.parse(names)).flatMap(list))
      .map((one) => {
        const named = /^(?:\$\{)?([\w-]+)/.exec(body.parse(one).provider ?? '')?.[1];
        return named ?? type.split('_', 1)[0] ?? '';
      }),
  );
}
