import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { arch } from 'node:process';

const platform = `linux_${arch === 'x64' ? 'amd64' : arch}`;

/**
 * Returns the providers for which a mirror has packages for this machine: `hashicorp/aws` for the registries of
 * Terraform and OpenTofu, and with the host in front for all. The version that a module requires may still be missing.
 */
export function readMirror(folder: string): ReadonlySet<string> {
  const below = (path: string): string[] => namesIn(join(folder, path)).map((name) => join(path, name));
  const found = namesIn(folder)
    .flatMap(below)
    .flatMap(below)
    .filter((path) => hasPackage(join(folder, path)));
  return new Set(found.flatMap(sourcesOf));
}

/** Returns the name with the host and, for the usual hosts, also without. */
function sourcesOf(path: string): string[] {
  const [host = '', ...source] = path.split('/');
  const all = usualHosts.has(host) ? [path, source.join('/')] : [path];
  return all.map((text) => text.toLowerCase());
}

const usualHosts: ReadonlySet<string> = new Set(['registry.terraform.io', 'registry.opentofu.org']);

/**
 * True if a package exists. Packed: a zip per version and platform; unpacked: a folder per version, with one per
 * platform.
 */
function hasPackage(folder: string): boolean {
  return namesIn(folder).some(
    (name) => name.endsWith(`_${platform}.zip`) || namesIn(join(folder, name)).includes(platform),
  );
}

/** Returns an empty list if the path is not a folder. */
function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
