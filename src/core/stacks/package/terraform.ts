/** Rules of the program that applies stacks, as far as they decide which packages can be applied. */

export interface TerraformProgram {
  readonly product: 'OpenTofu' | 'Terraform';
  /** Version as the program prints it: "1.11.4". */
  readonly version: string;
}

/**
 * True if the program reads a file as part of a module. Null stands for an unknown program: files of either program.
 */
export function readsFile(product: TerraformProgram['product'] | null, path: string): boolean {
  return product === 'Terraform' ? /\.tf(\.json)?$/.test(path) : /\.(tf|tofu)(\.json)?$/.test(path);
}

/**
 * Removes the files that OpenTofu ignores beside others: `main.tofu` replaces `main.tf`.
 * @see https://opentofu.org/docs/language/files/
 */
export function withoutReplaced(paths: readonly string[]): readonly string[] {
  const all = new Set(paths);
  return paths.filter((path) => !all.has(path.replace(/\.tf(\.json)?$/, '.tofu$1')) || !/\.tf(\.json)?$/.test(path));
}

/** Up to three numbers, and a pre-release after a hyphen. */
type Version = readonly [readonly number[], string];

function parseVersion(text: string): Version | null {
  const parts = /^v?(\d{1,9}(?:\.\d{1,9}){0,2})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?$/.exec(text.trim());
  return parts === null ? null : [(parts[1] ?? '').split('.').map(Number), parts[2] ?? ''];
}

function compare([some]: Version, [others]: Version): number {
  for (let place = 0; place < 3; place += 1) {
    const difference = (some[place] ?? 0) - (others[place] ?? 0);
    if (difference !== 0) return Math.sign(difference);
  }
  return 0;
}

/** Implements `~>`: `~> 1.4` allows 1.x from 1.4 on, `~> 1.4.2` allows 1.4.x from 1.4.2 on. */
function isPessimistic(version: Version, bound: Version): boolean {
  const fixed = bound[0].slice(0, Math.max(1, bound[0].length - 1));
  return compare(version, bound) >= 0 && fixed.every((part, place) => part === (version[0][place] ?? 0));
}

const operators: Readonly<Record<string, (version: Version, bound: Version) => boolean>> = {
  '': (version, bound) => compare(version, bound) === 0,
  '=': (version, bound) => compare(version, bound) === 0,
  '!=': (version, bound) => compare(version, bound) !== 0,
  '>': (version, bound) => compare(version, bound) > 0,
  '>=': (version, bound) => compare(version, bound) >= 0,
  '<': (version, bound) => compare(version, bound) < 0,
  '<=': (version, bound) => compare(version, bound) <= 0,
  '~>': isPessimistic,
};

/**
 * Checks a `required_version` such as ">= 1.4, < 2.0" as Terraform does.
 * @returns true also if part of the constraint or version is not understood: the program itself reports that
 */
function allows(constraint: string, version: Version): boolean {
  return constraint.split(',').every((part) => {
    const [, operator = '', text = ''] = /^\s*(=|!=|>=?|<=?|~>)?\s*(\S+)\s*$/.exec(part) ?? [];
    const bound = parseVersion(text);
    // Pre-releases have their own rules of comparison.
    if (bound === null || bound[1] !== '') return true;
    return operators[operator]?.(version, bound) ?? true;
  });
}

/** Returns the first constraint that keeps a program from applying a module; null if all allow it. */
export function findViolatedConstraint(
  constraints: readonly string[],
  { version: text }: TerraformProgram,
): string | null {
  const version = parseVersion(text);
  if (version === null || version[1] !== '') return null;
  return constraints.find((constraint) => !allows(constraint, version)) ?? null;
}
