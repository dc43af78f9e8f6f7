import { fileURLToPath } from 'node:url';
import { programsPath } from './environment.ts';
import type { KeeperPlan } from './keeper-plan.ts';

/** A keeper that hangs at its exit would be a phase that never ends; `prepareRuntime` explains the cause. */
const compileFlag = '--no-concurrent-sparkplug';

/** Compiled code, where `prepareRuntime` keeps it: a keeper starts in half the time and compiles no TypeScript. */
const compileCache = fileURLToPath(new URL('../../../../node_modules/.cache/node', import.meta.url));

/** Returns the command that runs another command under a keeper. Nothing of the gateway's environment is passed on. */
export function keeperCommand(plan: KeeperPlan, command: readonly string[]): string[] {
  const program = fileURLToPath(new URL('./keeper.ts', import.meta.url));
  const flags = ['--disable-warning=ExperimentalWarning', '--max-old-space-size=64', compileFlag];
  const node = [process.execPath, ...flags];
  return [
    'env',
    '-i',
    `PATH=${programsPath}`,
    `NODE_COMPILE_CACHE=${compileCache}`,
    ...node,
    program,
    JSON.stringify(plan),
    ...command,
  ];
}
