import { BaseSequencer, type TestSpecification } from 'vitest/node';

/**
 * Files that wait longest, in the order in which they are to begin: a file that begins last and waits for minutes is
 * all that a run does in the end. A file that is not named here is as good as one that is quick.
 */
export const longest: readonly string[] = [
  'test/suites/vllm/vllm.test.ts',
  'test/suites/docker-vllm/vllm.test.ts',
  'test/suites/docker/leaders.test.ts',
  'test/suites/docker/swarm.test.ts',
  'test/suites/compose/compose.test.ts',
  'test/chaos/chaos.test.ts',
  'test/programs/stopping.test.ts',
  'test/suites/docker/eviction.test.ts',
  'test/suites/docker/faults.test.ts',
  'test/base/postgres/postgres.test.ts',
  'test/core/requests/killed.test.ts',
  'test/programs/postgres-ends.test.ts',
  'test/suites/redis/one-gateway.test.ts',
  'test/suites/redis/workers.test.ts',
  'test/suites/redis/workers-postgres.test.ts',
  'test/suites/redis/outages.test.ts',
  'test/suites/docker/demand.test.ts',
  'test/base/db-outage.test.ts',
  'test/programs/refusals.test.ts',
  'test/core/fleet/store/leadership.test.ts',
  'test/suites/docker/scale.test.ts',
  'test/suites/docker/outage.test.ts',
  'test/suites/docker/rollout.test.ts',
  'test/suites/docker/swarm-gate.test.ts',
  'test/suites/docker/swarm-driver.test.ts',
];

/** Begins with the files that take longest. The other files come in the order of Vitest's own. */
export class WaitingFirst extends BaseSequencer {
  override async sort(specifications: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(specifications);
    const groupOf = ({ project }: TestSpecification): number => project.config.sequence.groupOrder;
    const placeOf = ({ moduleId }: TestSpecification): number => {
      const place = longest.findIndex((path) => moduleId.endsWith(`/${path}`));
      return place === -1 ? longest.length : place;
    };
    return sorted.toSorted((a, b) => groupOf(a) - groupOf(b) || placeOf(a) - placeOf(b));
  }
}
