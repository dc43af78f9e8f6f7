import { DockerError } from '#base/docker/docker.ts';
import { failedStart, type ReplicaExit, startErrors } from '#core/fleet/drivers/replica-exit.ts';

/** What a Docker engine's refusal means, as a start error code. */

/**
 * In the order of trust: the first match wins. The texts are those of Docker 20.10 to 29, containerd's resolver, runc
 * and nvidia's container toolkit.
 */
const signs: readonly (readonly [code: string, sign: RegExp])[] = [
  [
    startErrors.noSuchDevice,
    /could not select device driver|unresolvable CDI devices|nvidia-container-cli: (?:device error|initialization error)|unknown device|failed to inject (?:NVIDIA|CDI)|CDI device injection failed/i,
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

/** Only a login that is missing or wrong is refused with these. Of a private image registries say that it is not found. */
const imageDeniedSigns =
  /no basic auth credentials|unauthorized|authentication required|authorization failed|incorrect username or password|\b401\b/i;
/** Another login may help after these. */
const loginSigns = /access denied|denied:|forbidden|may require|toomanyrequests|\b403\b/i;

const missingImageSigns =
  /no such image|not found: manifest|manifest (?:for .* |\S+ )?(?:not found|unknown)|pull access denied|repository (?:does not exist|name not known)|name unknown|invalid reference format|: not found$|no matching manifest|image not known/i;

/** @param step what was being done: words such as "not found" mean something else each time */
export function startErrorCode(error: unknown, step: 'image' | 'container'): string {
  if (!(error instanceof DockerError)) return startErrors.refused;
  const { status, reason, call } = error;
  const known = codeOfReason(reason);
  if (known !== null) return known;
  if (call === 'pull' && imageDeniedSigns.test(reason)) return startErrors.imageDenied;
  if (missingImageSigns.test(reason) || (step === 'image' && status === 404)) return startErrors.imageNotFound;
  // What a registry says comes without a status too.
  if (status === null && call !== 'pull') return startErrors.hostUnreachable;
  return step === 'image' ? startErrors.pullFailed : startErrors.refused;
}

/** The failed start that an error of Docker means. */
export function refusedStart(error: unknown, step: 'image' | 'container'): ReplicaExit {
  return failedStart(startErrorCode(error, step), error instanceof DockerError ? error.reason : String(error));
}

/** Whether it matters for a failed pull which login the registry was asked with. */
export function concernsLogin(reason: string): boolean {
  return imageDeniedSigns.test(reason) || loginSigns.test(reason);
}

/** The code of what an engine wrote down of a failed start; null when it says nothing known. */
export function codeOfReason(reason: string): string | null {
  return signs.find(([, sign]) => sign.test(reason))?.[0] ?? null;
}
