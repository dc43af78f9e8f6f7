import { DockerError } from '#base/docker/docker.ts';
import { failedStart, type ReplicaExit, startErrors } from '#core/fleet/drivers/replica-exit.ts';

/** Maps errors of a Docker engine to start error codes. */

/**
 * Messages, most reliable first: the first match applies. The texts are those of Docker 20.10 to 29, containerd's
 * resolver, runc and nvidia's container toolkit.
 */
const signs: readonly (readonly [code: string, sign: RegExp])[] = [
  [
    startErrors.noSuchDevice,
    /could not select device driver|unresolvable CDI devices|nvidia-container-cli: (?:device error|initialization error)|unknown device|failed to inject (?:NVIDIA|CDI)|CDI device injection failed|adding custom device/i,
  ],
  ['ENOSPC', /no space left on device/i],
  ['EADDRINUSE', /port is already allocated|address already in use|cannot assign requested address/i],
  [
    startErrors.networkPoolEmpty,
    /non-overlapping IPv4 address pool|all predefined address pools have been fully subnetted/i,
  ],
  [
    startErrors.mount,
    /invalid mount config|bind source path does not exist|error while (?:creating mount source path|mounting volume)|create [^ ]+: volume name|error mounting/i,
  ],
  ['ENOENT', /executable file not found|exec:? .*no such file or directory|no command specified/i],
  ['EACCES', /exec:? .*permission denied/i],
  ['ENOMEM', /cannot allocate memory/i],
];

/** Messages that mean a missing or wrong login. Registries report private images as not found. */
const imageDeniedSigns =
  /no basic auth credentials|unauthorized|authentication required|authorization failed|incorrect username or password|\b401\b/i;
/** Messages after which another login may help. */
const loginSigns = /access denied|denied:|forbidden|may require|toomanyrequests|\b403\b/i;

const missingImageSigns =
  /no such image|not found: manifest|manifest (?:for .* |\S+ )?(?:not found|unknown)|pull access denied|repository (?:does not exist|name not known)|name unknown|invalid reference format|: not found$|no matching manifest|image not known/i;

/** @param step the step that failed: texts such as "not found" mean different things in each */
export function startErrorCode(error: unknown, step: 'image' | 'container'): string {
  if (!(error instanceof DockerError)) return startErrors.refused;
  const { status, reason, call } = error;
  const known = codeOfReason(reason);
  if (known !== null) return known;
  if (call === 'pull' && imageDeniedSigns.test(reason)) return startErrors.imageDenied;
  if (missingImageSigns.test(reason) || (step === 'image' && status === 404)) return startErrors.imageNotFound;
  // Errors of a registry have no status either.
  if (status === null && call !== 'pull') return startErrors.hostUnreachable;
  return step === 'image' ? startErrors.pullFailed : startErrors.refused;
}

/** Returns the failed start for a Docker error. */
export function refusedStart(error: unknown, step: 'image' | 'container'): ReplicaExit {
  return failedStart(startErrorCode(error, step), error instanceof DockerError ? error.reason : String(error));
}

/** True if a failed pull may depend on the registry login. */
export function concernsLogin(reason: string): boolean {
  return imageDeniedSigns.test(reason) || loginSigns.test(reason);
}

/** Returns the code for the error that a Docker engine recorded for a failed start; null if the text is unknown. */
export function codeOfReason(reason: string): string | null {
  return signs.find(([, sign]) => sign.test(reason))?.[0] ?? null;
}
