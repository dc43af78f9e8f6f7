import type { Sql } from 'postgres';
import type { Reach } from './connect-to-node.ts';
import type { Exposure, ExposureStatus } from './types.ts';

/** Finds out which addresses answer. One of several gateways makes each probe. */
export interface Probes {
  /** Probes those of the addresses that are due. @throws errors of the stores */
  run(exposures: readonly Exposure[]): Promise<void>;
}

const atOnceMax = 20;
/** Time that software may take to answer after its run has ended. */
const pendingSeconds = 120;
const nextSeconds: Readonly<Record<ExposureStatus, number>> = { pending: 2, ready: 30, unreachable: 15 };
/** Longer than a probe may take. */
const claimSeconds = 60;

interface Due {
  readonly installationId: string;
  readonly target: string;
  readonly isYoung: boolean;
}

export function createProbes(sql: Sql, reach: Reach): Probes {
  async function probe(exposure: Exposure, { installationId, target, isYoung }: Due): Promise<void> {
    const answers = await reach.connect(exposure).then(
      (stream) => {
        stream.on('error', () => undefined);
        stream.destroy();
        return true;
      },
      () => false,
    );
    const status: ExposureStatus = answers ? 'ready' : isYoung ? 'pending' : 'unreachable';
    await sql`
      update exposures set status = ${status},
        next_probe_at = clock_timestamp() + make_interval(secs => ${nextSeconds[status]})
      where installation_id = ${installationId} and target = ${target}`;
  }

  return {
    async run(exposures) {
      if (exposures.length === 0) return;
      const byId = new Map(exposures.map((exposure) => [exposure.installationId, exposure]));
      const due = await sql<Due[]>`
        update exposures set next_probe_at = clock_timestamp() + make_interval(secs => ${claimSeconds})
        where installation_id in (
          select installation_id from exposures where next_probe_at <= clock_timestamp()
          order by next_probe_at limit ${atOnceMax} for update skip locked)
        returning installation_id as "installationId", target,
          status <> 'unreachable' and since > clock_timestamp() - make_interval(secs => ${pendingSeconds}) as "isYoung"`;
      await Promise.all(
        due.map(async (one) => {
          const exposure = byId.get(one.installationId);
          if (exposure !== undefined) await probe(exposure, one);
        }),
      );
    },
  };
}
