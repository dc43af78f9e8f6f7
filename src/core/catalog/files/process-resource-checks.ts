import { engineKindOf } from './process-command-checks.ts';
import { parallelProblem } from './container-checks.ts';
import type { EngineDefinition, EngineGroup, ProcessDriverSettings } from './engine-definition.ts';
import type { EngineFile } from './engine-file-schema.ts';
import type { FileProblem } from './zod-problems.ts';

/** Checks of devices, memory and groups of processes, within one file and across all files. */

const deviceVariables = ['CUDA_VISIBLE_DEVICES', 'NVIDIA_VISIBLE_DEVICES', 'HIP_VISIBLE_DEVICES'];

/** Checks the fields of one file. */
export function resourceProblems(engine: EngineFile): FileProblem[] {
  if (engine.driver !== 'process' || engine.gpus === undefined) return [];
  const given = deviceVariables
    .filter((name) => engine.env[name] !== undefined)
    .map((name) => ({
      path: ['env', name],
      message: 'remove it; Headgate assigns devices to each replica (see gpus)',
    }));
  if (engineKindOf(engine) !== 'vllm') return given;
  const wrong = parallelProblem(engine.command, engine.gpus.count);
  if (wrong === null) return given;
  return [...given, { path: wrong.index === null ? ['gpus', 'count'] : ['command', wrong.index], message: wrong.text }];
}

export interface GroupProblem {
  readonly engine: EngineDefinition;
  readonly field: string;
  readonly message: string;
}

/** Reports files that contradict each other about a group, or that keep an engine of their group from ever running. */
export function groupProblems(engines: readonly EngineDefinition[]): GroupProblem[] {
  const members = engines.flatMap((engine) => {
    const { driver } = engine;
    if (driver.type !== 'process' || driver.group === null) return [];
    return [{ engine, group: driver.group, isKept: driver.pinned || alwaysRuns(driver) }];
  });
  return [...Map.groupBy(members, ({ group }) => group.name).values()].flatMap((group) => {
    const [first, ...others] = group;
    if (first === undefined) return [];
    const differing = others.flatMap((other) => {
      const field = settingNames.find((name) => other.group[name] !== first.group[name]);
      if (field === undefined) return [];
      const message = `${first.engine.file} sets ${field}: ${first.group[field]} for the group ${first.group.name}; use the same value`;
      return [{ engine: other.engine, field: `group.${field}`, message }];
    });
    // A disabled engine keeps no other from running.
    const enabled = group.filter(({ engine }) => engine.enabled);
    const kept = enabled.find(({ isKept }) => isKept);
    if (differing.length > 0 || kept === undefined || !first.group.swap || enabled.length === 1) return differing;
    const message = `this engine is always running, so no other engine of the group ${first.group.name} could start`;
    return [{ engine: kept.engine, field: keptBy(kept.engine), message }];
  });
}

const alwaysRuns = ({ replicas, schedule }: ProcessDriverSettings): boolean =>
  [replicas, ...schedule].every(({ min }) => min > 0);

const settingNames = ['swap', 'exclusive', 'persistent'] as const satisfies readonly (keyof EngineGroup)[];

function keptBy({ driver }: EngineDefinition): string {
  return driver.type === 'process' && driver.pinned ? 'pinned' : 'replicas.min';
}
