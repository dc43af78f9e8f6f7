/** Names and labels of run containers. They suffice for any gateway to identify a container. */

export const labels = {
  managed: 'headgate.managed',
  /** Owner of the runs: the id of the database's fleet. Engines use another label, by which they are listed. */
  runs: 'headgate.runs',
  run: 'headgate.run',
  phase: 'headgate.phase',
} as const;

/** Name of the container that keeps a run's volume and network, from the run's start to its end. */
export const keeperPhase = 'work';

/** Name of a run's network, and prefix of its containers. The gate of the Docker socket allows names of this form. */
export function networkName(runId: string): string {
  const hex = runId.replaceAll('-', '');
  return `headgate-run-${hex.slice(0, 22)}-${hex.slice(22)}`;
}

/** Returns one name per phase: a phase never runs twice. */
export function containerName(runId: string, phase: string): string {
  return `${networkName(runId)}-${phase}`;
}

/** Name of a container before a gateway claims it; it is started only under the name of its phase. */
export const unclaimedName = (name: string): string => `${name}.new`;

/** Name of a phase that was asked to end: a second SIGINT would make Terraform discard its state. */
export const interruptedName = (name: string): string => `${name}.stopping`;

/** Returns the run of a network; null for any other name. */
export function runOfNetwork(name: string): string | null {
  const [, first, last] = /^headgate-run-([0-9a-f]{22})-([0-9a-f]{10})$/.exec(name) ?? [];
  if (first === undefined || last === undefined) return null;
  const hex = first + last;
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

export function labelsOf(fleetId: string, runId: string, phase: string): Record<string, string> {
  return { [labels.managed]: 'true', [labels.runs]: fleetId, [labels.run]: runId, [labels.phase]: phase };
}
