import type { Row } from '../row.ts';
import { answersLostRows } from './answers-lost.ts';
import { clockRows } from './clock.ts';
import { creationRows } from './creations.ts';
import { diskRows } from './disk.ts';
import { dockerRows } from './docker.ts';
import { engineRows } from './engine.ts';
import { gatewayRows } from './gateways.ts';
import { idempotencyRows } from './idempotency.ts';
import { limitRows } from './limits.ts';
import { networkRows } from './network.ts';
import { ordinaryDayRows } from './ordinary-day.ts';
import { postgresHistoryRows } from './postgres-history.ts';
import { postgresAwayRows } from './postgres-away.ts';
import { postgresSlowRows } from './postgres-slow.ts';
import { postgresTroubleRows } from './postgres-trouble.ts';
import { redisAwayRows } from './redis-away.ts';
import { redisForgetsRows } from './redis-forgets.ts';
import { sharedFolderRows } from './shared-folder.ts';

/** The table of faults, in its order. */
export const rows: readonly Row[] = [
  ...redisAwayRows,
  ...redisForgetsRows,
  ...networkRows,
  ...postgresAwayRows,
  ...postgresSlowRows,
  ...postgresTroubleRows,
  ...postgresHistoryRows,
  ...answersLostRows,
  ...creationRows,
  ...idempotencyRows,
  ...gatewayRows,
  ...sharedFolderRows,
  ...engineRows,
  ...dockerRows,
  ...diskRows,
  ...clockRows,
  ...limitRows,
  ...ordinaryDayRows,
];
