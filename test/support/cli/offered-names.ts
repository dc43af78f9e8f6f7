import { symlinkSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { repository } from './run-cli.ts';

/**
 * A gateway whose clusters have names that a shell would run, and a shell's environment that asks it.
 * @param bin an empty folder for the programs that it has
 */
export async function offerNames(bin: string): Promise<{ env: Readonly<Record<string, string>>; close: () => void }> {
  const names = ['research', 'rm -rf', '$(touch hacked)', '`x`', '-f', 'a;b'];
  const server = createServer((_, response) => {
    response.end(JSON.stringify({ data: names.map((name) => ({ id: 'cluster_1', name })) }));
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const address = server.address();
  symlinkSync(join(repository, 'src/programs/headgate.js'), join(bin, 'headgate'));
  symlinkSync(process.execPath, join(bin, 'node'));
  const env = {
    PATH: `${bin}:${process.env['PATH'] ?? ''}`,
    HEADGATE_URL: `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`,
    HEADGATE_API_KEY: 'k',
  };
  return { env, close: () => void server.close() };
}
