import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { arch } from 'node:process';

const platform = `linux_${arch === 'x64' ? 'amd64' : arch}`;

/**
 * Providers that a mirror has packages of for this machine, as `hashicorp/aws` for the registries of Terraform and
 * OpenTofu, and with the host before that for all of them. A version that a module asks for may still be missing.
 */
export function readMirror(folder: string): ReadonlySet<string> {
  const below = (path: string): string[] => namesIn(join(folder, path)).map((name) => join(path, name));
  const found = namesIn(folder)
    .flatMap(below)
    .flatMap(below)
    .filter((path) => hasPackage(join(folder, path)));
  return new Set(found.flatMap(sourcesOf));
}

/** With the host and, where it is a usual one, without. */
function sourcesOf(path: string): string[] {
  const [host = '', ...source] = path.split('/');
  const all = usualHosts.has(host) ? [path, source.join('/')] : [path];
  return all.map((text) => text.toLowerCase());
}

const usualHosts: ReadonlySet<string> = new Set(['registry.terraform.io', 'registry.opentofu.org']);

/** Packed: a zip for each version and platform; unpacked: a folder of the version, and in it one of the platform. */
function hasPackage(folder: string): boolean {
  return namesIn(folder).some(
    (name) => name.endsWith(`_${platform}.zip`) || namesIn(join(folder, name)).includes(platform),
  );
}

/** Empty for what is no folder. */
function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
