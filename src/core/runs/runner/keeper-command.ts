import { fileURLToPath } from 'node:url';
import { programsPath } from './environment.ts';
import type { KeeperPlan } from './keeper-plan.ts';

/** The command that runs another one under a keeper. Nothing of the gateway's environment comes with it. */
export function keeperCommand(plan: KeeperPlan, command: readonly string[]): string[] {
  const program = fileURLToPath(new URL('./keeper.ts', import.meta.url));
  const node = [process.execPath, '--disable-warning=ExperimentalWarning', '--max-old-space-size=64'];
  return ['env', '-i', `PATH=${programsPath}`, ...node, program, JSON.stringify(plan), ...command];
}
