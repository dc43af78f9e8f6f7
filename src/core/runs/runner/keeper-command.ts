import { fileURLToPath } from 'node:url';
import { programsPath } from './environment.ts';
import type { KeeperPlan } from './keeper-plan.ts';

/** A keeper that hung at its exit would be a phase that does not end; `prepareRuntime` says how that comes. */
const compileFlag = '--no-concurrent-sparkplug';

/** The command that runs another one under a keeper. Nothing of the gateway's environment comes with it. */
export function keeperCommand(plan: KeeperPlan, command: readonly string[]): string[] {
  const program = fileURLToPath(new URL('./keeper.ts', import.meta.url));
  const flags = ['--disable-warning=ExperimentalWarning', '--max-old-space-size=64', compileFlag];
  const node = [process.execPath, ...flags];
  return ['env', '-i', `PATH=${programsPath}`, ...node, program, JSON.stringify(plan), ...command];
}
