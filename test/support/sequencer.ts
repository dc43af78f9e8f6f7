import { BaseSequencer, type TestSpecification } from 'vitest/node';

/**
 * Files that every machine runs and that take longest, in the order in which they begin: a file that begins last and
 * waits for minutes is all that a run does in the end. A file that is not named here is as good as one that is quick.
 */
export const longest: readonly string[] = [
  'test/programs/backup.test.ts',
  'test/edge/cli/runs.test.ts',
  'test/programs/packed.test.ts',
  'test/edge/cli/everyday.test.ts',
  'test/core/runs/runs.test.ts',
  'test/core/runs/hostile-runs.test.ts',
  'test/programs/stopping.test.ts',
  'test/core/stored-requests/killed.test.ts',
  'test/programs/keys-recover.test.ts',
  'test/core/runs/walls.test.ts',
  'test/programs/verify-books.test.ts',
  'test/edge/cli/engines.test.ts',
  'test/edge/cli/clusters.test.ts',
  'test/core/runs/overtaken.test.ts',
  'test/programs/doctor.test.ts',
  'test/edge/cli/login.test.ts',
  'test/programs/refusals.test.ts',
  'test/edge/cli/commands.test.ts',
  'test/edge/api/run-nodes.test.ts',
  'test/edge/api/run-readers.test.ts',
  'test/edge/cli/strangers.test.ts',
  'test/programs/postgres-ends.test.ts',
  'test/edge/cli/code.test.ts',
  'test/base/postgres/postgres.test.ts',
  'test/edge/cli/import/import.test.ts',
  'test/fuzz/engine-files.test.ts',
  'test/base/db-outage.test.ts',
];

/**
 * Sorts files by project, and begins with the suites: Vitest ends a worker whose next file is of another project, and
 * a new worker imports the whole gateway again. The files that every machine runs come last; they have the most short
 * files, which keep all workers busy until the end.
 */
export class ByProject extends BaseSequencer {
  override async sort(specifications: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(specifications);
    const groupOf = ({ project }: TestSpecification): number => project.config.sequence.groupOrder;
    const lastIsHouse = ({ project }: TestSpecification): number => (project.name === 'house' ? 1 : 0);
    const placeOf = ({ moduleId }: TestSpecification): number => {
      const place = longest.findIndex((path) => moduleId.endsWith(`/${path}`));
      return place === -1 ? longest.length : place;
    };
    return sorted.toSorted(
      (a, b) =>
        groupOf(a) - groupOf(b) ||
        lastIsHouse(a) - lastIsHouse(b) ||
        a.project.name.localeCompare(b.project.name) ||
        placeOf(a) - placeOf(b),
    );
  }
}
