/** Decides which folders of a machine its containers may mount; some would give containers control of the machine. */

/** A folder of the machine or a named volume that containers may mount. */
export interface AllowedMount {
  /** An absolute path, without a trailing slash, or the name of a volume. */
  readonly source: string;
  readonly isReadOnly: boolean;
}

/** The kernel, devices, sockets, and what container engines keep: whoever mounts these is root on the machine. */
const closedFolders = [
  '/boot',
  '/dev',
  '/proc',
  '/run',
  '/sys',
  '/var/lib/containerd',
  '/var/lib/containers',
  '/var/lib/docker',
  '/var/lib/kubelet',
  '/var/run',
];
/** Safe folders inside those: memory, and disks that a desktop has mounted. */
const openFolders = ['/dev/shm', '/run/media'];
/** Programs and settings of the machine: single folders inside, such as certificates, may be mounted read-only. */
const systemFolders = ['/bin', '/etc', '/lib', '/lib32', '/lib64', '/sbin', '/usr'];
/** Home folders: keys and login scripts lie directly in them. */
const homeFolder = /^\/(?:root|home|home\/[^/]+)$/;

/** The path without trailing slashes. */
export function trimFolder(path: string): string {
  return path.length > 1 ? path.replace(/\/+$/, '') || '/' : path;
}

/** True if a path is the folder or lies in it; both without slashes at their end. */
export function liesIn(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder === '/' ? '/' : `${folder}/`);
}

/** Returns the reason why containers must not mount a folder of the machine; null if they may. */
export function hostFolderProblem(given: string, isReadOnly: boolean): string | null {
  const path = trimFolder(given);
  const parts = path.split('/').slice(1);
  if (!path.startsWith('/') || parts.some((part) => part === '.' || part === '..' || (part === '' && path !== '/'))) {
    return 'expected an absolute path without "." and ".."';
  }
  if (/\.sock(?:et)?$/.test(path))
    return `${path} is a socket, which containers must not mount: the Docker socket controls the machine`;
  const holdsClosed = closedFolders.some((folder) => liesIn(path, folder) || liesIn(folder, path));
  if (holdsClosed && !openFolders.some((folder) => liesIn(path, folder))) {
    return `${path} gives control over the machine: use a folder that contains only the models`;
  }
  if (systemFolders.includes(path) || homeFolder.test(path)) {
    return `${path} contains more than an engine needs: use a folder inside it`;
  }
  if (isReadOnly || !systemFolders.some((folder) => liesIn(path, folder))) return null;
  return `${path} is a system folder and must be read-only: add :ro`;
}

/**
 * Reads `/srv/models`, `/srv/models:ro`, `hf-cache` or `hf-cache:ro`.
 * @returns null for anything else
 */
export function parseAllowedMount(text: string): AllowedMount | null {
  const [source = '', mode, ...more] = text.split(':');
  if (more.length > 0 || (mode !== undefined && mode !== 'ro')) return null;
  if (!source.startsWith('/') && !/^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$/.test(source)) return null;
  return { source: trimFolder(source), isReadOnly: mode === 'ro' };
}

/**
 * Names a problem of a list of folders that containers may mount one by one; null if there is none. No folder may lie
 * in another: a container that mounts the outer folder could replace the inner folder by a link to anywhere.
 */
export function folderListProblem(folders: readonly AllowedMount[]): string | null {
  for (const { source, isReadOnly } of folders) {
    const problem = hostFolderProblem(source, isReadOnly);
    if (problem !== null) return problem;
    const outer = folders.find((other) => other.source !== source && liesIn(source, other.source));
    if (outer !== undefined) {
      return `${source} is inside ${outer.source}, where a container could replace it with a link: list separate folders`;
    }
    if (folders.some((other) => other.source === source && other.isReadOnly !== isReadOnly)) {
      return `${source} is listed with and without :ro`;
    }
  }
  return null;
}
