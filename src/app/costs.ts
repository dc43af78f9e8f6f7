import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import { type Costs, createCosts } from '#core/costs/costs.ts';
import { readGpuRuns } from '#core/fleet/fleet.ts';
import { createReplicaCarrier } from '#edge/jobs/jobs.ts';
import type { Foundation } from './foundation.ts';
import type { Gateway } from './gateway.ts';
import { createOrganizationDirectory, type OrganizationDirectory } from './organization-directory.ts';
import type { Part } from './parts.ts';

/** Costs, and the job that tells them which GPUs replicas hold. */
export interface CostsWing {
  /** Writes in transactions of others, and reports by turns on the connections of reports. */
  readonly costs: Costs;
  readonly directory: OrganizationDirectory;
  readonly part: Part;
}

export interface CostsWingOptions {
  readonly foundation: Foundation;
  /** The only rooms of the gateway wing that this wing uses. */
  readonly gateway: Pick<Gateway, 'history' | 'fleet' | 'catalog'>;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
}

/** How old an end of a replica is at most before costs know of it. */
const carryMs = 5000;

export function createCostsWing(options: CostsWingOptions): CostsWing {
  const { foundation, gateway, db, clock, log } = options;
  const { audit, accounts } = foundation;
  const costs = createCosts({ db, audit, log });
  const directory = createOrganizationDirectory(accounts);
  const carrier = createReplicaCarrier({
    readRuns: (wanted) => readGpuRuns(db, wanted),
    costs,
    findEngine: (id) => gateway.catalog.list().find((model) => model.id === id)?.engine,
    hosts: () => gateway.fleet.hosts(),
    organizations: directory,
    clock,
    log,
  });
  const run = async (): Promise<void> => void (await carrier.carry());
  return {
    costs: { ...costs, ...reportsInTurn(options) },
    directory,
    part: { name: 'costs', jobs: [{ name: 'carry runs of replicas', everyMs: carryMs, where: 'one', run }] },
  };
}

/** Reports on connections that serve nothing else, organizations taking turns. */
function reportsInTurn({ foundation, gateway, log }: CostsWingOptions): Pick<Costs, 'report' | 'replicaCosts'> {
  const { audit } = foundation;
  const { history } = gateway;
  return {
    report(request) {
      const [only = null, ...others] = request.organizationIds ?? [];
      return history.during(others.length === 0 ? only : null, (db) => createCosts({ db, audit, log }).report(request));
    },
    replicaCosts: (request) => history.during(null, (db) => createCosts({ db, audit, log }).replicaCosts(request)),
  };
}
