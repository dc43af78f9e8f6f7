import type { Db } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import { type Costs, createCosts } from '#core/costs/costs.ts';
import { createStacks, type Stacks } from '#core/stacks/stacks.ts';
import type { Foundation } from './foundation.ts';

/** The wing beside the gateway: what nodes and GPUs are held for, and what that costs. */
export interface Platform {
  readonly costs: Costs;
  readonly stacks: Stacks;
}

export interface PlatformOptions {
  readonly foundation: Foundation;
  readonly db: Db;
  readonly log: Log;
}

export function createPlatform({ foundation: { audit }, db, log }: PlatformOptions): Platform {
  return { costs: createCosts({ db, audit, log }), stacks: createStacks({ db, audit, log }) };
}
