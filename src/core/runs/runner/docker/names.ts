/** What containers of runs are called and bear, so that every gateway can tell from them alone what they are. */

export const labels = {
  managed: 'headgate.managed',
  /** Whose runs: the id of the database's fleet. Engines bear it under another name, and are looked for by that. */
  runs: 'headgate.runs',
  run: 'headgate.run',
  phase: 'headgate.phase',
} as const;

/** The container that keeps a run's volume and network, from its beginning to its end. */
export const keeperPhase = 'work';

/** Also of the run's network. Within the names that the door to the Docker socket knows. */
export function networkName(runId: string): string {
  const hex = runId.replaceAll('-', '');
  return `headgate-run-${hex.slice(0, 22)}-${hex.slice(22)}`;
}

/** One name for each phase: a phase never runs twice. */
export function containerName(runId: string, phase: string): string {
  return `${networkName(runId)}-${phase}`;
}

/** Of a container that nobody starts before it has the name of its phase. */
export const unclaimedName = (name: string): string => `${name}.new`;

/** Of a phase that was asked to end: a second SIGINT would have Terraform throw its state away. */
export const interruptedName = (name: string): string => `${name}.stopping`;

/** Null for the name of anything else. */
export function runOfNetwork(name: string): string | null {
  const [, first, last] = /^headgate-run-([0-9a-f]{22})-([0-9a-f]{10})$/.exec(name) ?? [];
  if (first === undefined || last === undefined) return null;
  const hex = first + last;
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

export function labelsOf(fleetId: string, runId: string, phase: string): Record<string, string> {
  return { [labels.managed]: 'true', [labels.runs]: fleetId, [labels.run]: runId, [labels.phase]: phase };
}
