import { BaseSequencer, type TestSpecification } from 'vitest/node';

/**
 * Files that wait longest, in the order in which they are to begin: a file that begins last and waits for minutes is
 * all that a run does in the end. A file that is not named here is as good as one that is quick.
 */
export const longest: readonly string[] = [
  'test/suites/compose/compose.test.ts',
  'test/programs/backup.test.ts',
  'test/suites/terraform/runs.test.ts',
  'test/suites/docker-vllm/vllm.test.ts',
  'test/suites/browser/hostile.test.ts',
  'test/suites/vllm/vllm.test.ts',
  'test/edge/cli/runs.test.ts',
  'test/suites/docker/swarm.test.ts',
  'test/suites/docker/leaders.test.ts',
  'test/programs/packed.test.ts',
  'test/suites/caddy/web-addresses.test.ts',
  'test/suites/docker-terraform/docker-runs.test.ts',
  'test/suites/docker-terraform/swarm-runs.test.ts',
  'test/edge/cli/everyday.test.ts',
  'test/core/runs/runs.test.ts',
  'test/core/runs/hostile-runs.test.ts',
  'test/suites/terraform/provider-mirror.test.ts',
  'test/programs/stopping.test.ts',
  'test/suites/browser/admin.test.ts',
  'test/suites/schemathesis/schemathesis.test.ts',
  'test/suites/browser/platform.test.ts',
  'test/suites/terraform/platform-key.test.ts',
  'test/suites/caddy/members-only.test.ts',
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
  'test/suites/docker/eviction.test.ts',
  'test/edge/cli/commands.test.ts',
  'test/edge/api/run-nodes.test.ts',
  'test/chaos/chaos.test.ts',
  'test/suites/terraform/run-gateways.test.ts',
  'test/suites/browser/sign-in.test.ts',
  'test/suites/redis/workers.test.ts',
  'test/suites/terraform/builtin-stacks.test.ts',
  'test/suites/browser/sessions.test.ts',
  'test/edge/api/run-readers.test.ts',
  'test/suites/browser/pages.test.ts',
  'test/suites/vllm/routes.test.ts',
  'test/suites/docker/faults.test.ts',
  'test/suites/terraform/unreachable-nodes.test.ts',
  'test/suites/docker/rollout.test.ts',
  'test/edge/cli/strangers.test.ts',
  'test/suites/vllm/reconcile.test.ts',
  'test/suites/browser/keys.test.ts',
  'test/programs/postgres-ends.test.ts',
  'test/edge/cli/code.test.ts',
  'test/base/postgres/postgres.test.ts',
  'test/suites/docker/swarm-gate.test.ts',
  'test/suites/terraform/killed-gateway.test.ts',
  'test/edge/cli/import/import.test.ts',
  'test/suites/redis/one-gateway.test.ts',
  'test/fuzz/engine-files.test.ts',
  'test/suites/redis/outages.test.ts',
  'test/suites/redis/many-gateways.test.ts',
  'test/base/db-outage.test.ts',
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
