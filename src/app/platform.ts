import type { Db } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import { type Costs, createCosts } from '#core/costs/costs.ts';
import { createStacks, type Stacks } from '#core/stacks/stacks.ts';
import type { Foundation } from './foundation.ts';
import type { Part } from './parts.ts';

/** The wing beside the gateway: what nodes and GPUs are held for, and what that costs. */
export interface Platform {
  readonly rooms: {
    readonly costs: Costs;
    readonly stacks: Stacks;
  };
  readonly parts: {
    readonly stacks: Part;
  };
}

export interface PlatformOptions {
  readonly foundation: Foundation;
  readonly db: Db;
  readonly log: Log;
}

export function createPlatform({ foundation: { audit }, db, log }: PlatformOptions): Platform {
  const stacks = createStacks({ db, audit, log });
  return {
    rooms: { costs: createCosts({ db, audit, log }), stacks },
    parts: {
      stacks: { name: 'stacks', start: () => stacks.syncBuiltins() },
    },
  };
}
