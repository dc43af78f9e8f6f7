import { join } from 'node:path';
import { expect } from 'vitest';
import { findPostmaster } from '#base/postgres/postmaster.ts';
import { type Asked, type Complete, keepAsking } from '#test/inference/booked-load.ts';
import { eventually } from '#test/inference/inference-gateway.ts';
import { liftLimits } from '#test/gateway.ts';
import { clientOf, ended, type GatewayProcess, givenKey, type Home, postgresPid } from './gateway-process.ts';

export const clusterOf = ({ dataDir }: Home): string => join(dataDir, 'postgres', 'cluster');

/** How often a gateway's log has a line whose message begins with a text. */
export function timesSaid(gateway: GatewayProcess, text: string): number {
  return gateway.output.stdout.split(`"msg":"${text}`).length - 1;
}

/**
 * Kills a gateway's built-in PostgreSQL while many ask, twice, each time when answers are seen again. It comes back at
 * its port by itself, which the log says once. @returns what was seen complete, when nothing is held any more
 */
export async function killPostgresUnderLoad(
  home: Home,
  gateway: GatewayProcess,
): Promise<{ asked: Asked; complete: Complete }> {
  const asked = { url: await gateway.url(), key: givenKey };
  const client = clientOf(asked.url);
  expect((await client.chat({})).status).toBe(200);
  await liftLimits(asked.url, givenKey);
  const first = await findPostmaster(clusterOf(home));
  const complete: Complete = new Map();
  let enough = false;
  const asking = Array.from({ length: 16 }, (_, index) => keepAsking(asked, index % 2 === 0, complete, () => enough));
  const more = async (): Promise<void> => {
    const before = complete.size;
    await eventually(async () => complete.size > before + 50);
  };
  for (const times of [1, 2]) {
    await more();
    const pid = await postgresPid(home.dataDir);
    process.kill(pid, 'SIGKILL');
    await ended(pid);
    await eventually(async () => timesSaid(gateway, 'PostgreSQL runs again') === times).catch(() => {
      const lines = gateway.output.stdout.split('\n').filter((line) => line.includes('"msg":"PostgreSQL'));
      throw new Error(`PostgreSQL does not run again: ${lines.join('\n')}`);
    });
  }
  await more();
  enough = true;
  await Promise.all(asking);
  await eventually(async () => (await client.get('/v1/wallet')).held === '0');
  expect(timesSaid(gateway, 'PostgreSQL exited unexpectedly')).toBe(2);
  expect(timesSaid(gateway, 'PostgreSQL did not restart')).toBe(0);
  expect((await findPostmaster(clusterOf(home)))?.port).toBe(first?.port);
  return { asked, complete };
}
