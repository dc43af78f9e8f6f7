import { writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { checkGates } from '#programs/doctor-docker.ts';
import { runCli, useFolders } from '#test/cli/run-cli.ts';
import { freePort } from '#test/free-port.ts';

/** The doctor's checks of docker-gates that take runs on the nodes of a swarm. */

const folders = useFolders();
const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

const image = 'headgate-runs:1';

/** As a docker-gate answers. */
async function gate(host: string, port: number, node: string, images: readonly string[]): Promise<void> {
  const server = createServer(({ url = '' }, response) => {
    response.setHeader('content-type', 'application/json').setHeader('api-version', '1.41');
    if (url.endsWith('/info')) return response.end(JSON.stringify({ ID: `ID-${node}`, Name: node }));
    const asked = /\/images\/([^/]+)\/json$/.exec(url)?.[1];
    if (asked === undefined) return response.end('{"ApiVersion":"1.41","MinAPIVersion":"1.24"}');
    const isThere = images.includes(decodeURIComponent(asked));
    if (!isThere) response.statusCode = 404;
    return response.end(isThere ? '{"Id":"sha256:1"}' : '{"message":"No such image"}');
  });
  servers.push(server.listen(port, host));
  await new Promise((resolve) => server.once('listening', resolve));
}

it('reports swarm gates whose name has no address, also from hosts.yaml, as wrong', async () => {
  const code = (): Promise<never> => Promise.reject(Object.assign(new Error('queryA'), { code: 'ENOTFOUND' }));
  const [finding] = await checkGates({ host: 'tasks.none', port: 2375 }, image, code);
  expect(finding).toMatchObject({
    state: 'wrong',
    message: 'swarm.gates tasks.none:2375: the name has no address (ENOTFOUND)',
    next: expect.stringContaining('tcp://tasks.SERVICE:2375'),
  });

  const [enginesDir, dataDir] = [folders(), folders()];
  writeFileSync(
    join(enginesDir, 'hosts.yaml'),
    'swarm:\n  docker: unix:///nonexistent/docker.sock\n  gates: tcp://tasks.no_such_gate:2375\n',
  );
  const look = async (env: Record<string, string>) => {
    const { stdout } = await runCli(['doctor', '--json'], {
      env: { HEADGATE_ENGINES_DIR: enginesDir, HEADGATE_DATA_DIR: dataDir, ...env },
    });
    const { checks } = JSON.parse(stdout) as { checks: { name: string; state: string; message: string }[] };
    return checks.filter(({ name }) => name === 'docker');
  };
  expect(await look({ HEADGATE_RUNS_IMAGE: image })).toMatchObject([
    { state: 'wrong', message: expect.stringContaining('tasks.no_such_gate:2375: the name has no address') },
  ]);
  expect(await look({})).toMatchObject([{ state: 'note', message: 'swarm.gates tasks.no_such_gate:2375: not used' }]);
});

it('reports each gate: one that answers, one without the image, one that does not answer', async () => {
  const port = await freePort();
  await gate('127.0.0.2', port, 'alpha', [image]);
  await gate('127.0.0.3', port, 'beta', []);
  const addresses = ['127.0.0.2', '127.0.0.3', '127.0.0.4'];
  const findings = await checkGates({ host: 'tasks.gates', port }, image, () => Promise.resolve(addresses));
  expect(findings).toMatchObject([
    { state: 'ok', message: `swarm.gates tasks.gates:${port}: the gate at 127.0.0.2 answers (node alpha)` },
    { state: 'note', message: expect.stringContaining(`(node beta) and does not have ${image}`) },
    { state: 'wrong', message: expect.stringContaining('the gate at 127.0.0.4 cannot be used (') },
  ]);
});
