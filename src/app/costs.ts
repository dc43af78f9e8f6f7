import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { type CostBudgets, type CostBudgetsOptions, createCostBudgets } from '#core/cost-budgets/cost-budgets.ts';
import { type Costs, createCosts } from '#core/costs/costs.ts';
import { readGpuRuns } from '#core/fleet/fleet.ts';
import { readAppliedSpans } from '#core/runs/runs.ts';
import { createReplicaCarrier } from '#edge/jobs/jobs.ts';
import type { Foundation } from './foundation.ts';
import type { Gateway } from './gateway.ts';
import { createOrganizationDirectory, type OrganizationDirectory } from './organization-directory.ts';
import type { Part } from './lifecycle.ts';

/** Costs, and the job that records which GPUs replicas use. */
export interface CostsWing {
  /** Writes in transactions of its callers; reads reports in turns on the connections of reports. */
  readonly costs: Costs;
  readonly costBudgets: CostBudgets;
  readonly directory: OrganizationDirectory;
  readonly part: Part;
}

export interface CostsWingOptions {
  readonly foundation: Foundation;
  /** The gateway wing: its replicas and models, and the turns of reports. */
  readonly gateway: Pick<Gateway, 'history' | 'fleet' | 'catalog'>;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
}

/** Milliseconds between runs of the job: costs know of the end of a replica after that time at most. */
const carryMs = 5000;

/** Milliseconds between checks of cost budgets. */
const budgetsMs = 5 * 60_000;

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
  const readable = { ...costs, ...reportsOnOwnConnections(options) };
  const raiseIn: CostBudgetsOptions['raiseIn'] = (tx, alert) => foundation.alerts.raiseIn(tx, alert);
  const costBudgets = createCostBudgets({ db, clock, log, audit, costs: readable, raiseIn });
  return {
    costs: readable,
    costBudgets,
    directory,
    part: {
      name: 'costs',
      jobs: [
        { name: 'carry runs of replicas', everyMs: carryMs, where: 'one', run },
        { name: 'check cost budgets', everyMs: budgetsMs, where: 'one', run: () => costBudgets.notify() },
      ],
    },
  };
}

/** Returns reports that use connections of their own, on which organizations take turns. */
function reportsOnOwnConnections({
  foundation,
  gateway,
  log,
}: CostsWingOptions): Pick<Costs, 'report' | 'series' | 'replicaCosts'> {
  const { audit } = foundation;
  const { history } = gateway;
  return {
    report: (request) =>
      history.during(onlyOf(request.organizationIds), (db) => createCosts({ db, audit, log }).report(request)),
    series: (request) =>
      history.during(onlyOf(request.organizationIds), (db) => {
        const readStackSpans = () => readAppliedSpans(db);
        return createCosts({ db, audit, log, readStackSpans }).series(request);
      }),
    replicaCosts: (request) => history.during(null, (db) => createCosts({ db, audit, log }).replicaCosts(request)),
  };
}

/** Returns the organization whose turn a report is; null for several organizations. */
function onlyOf(organizationIds: readonly string[] | null): string | null {
  const [only = null, ...others] = organizationIds ?? [];
  return others.length === 0 ? only : null;
}
