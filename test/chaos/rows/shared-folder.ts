import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { repository } from '#test/programs/gateway-process.ts';
import { findProgram } from '#test/compose.ts';
import { freePort } from '#test/free-port.ts';
import { callApi } from '../parts/api.ts';
import type { Where } from '../parts/client.ts';
import type { ChaosGateway } from '../parts/gateway.ts';
import { endWithUs } from '../parts/tidy.ts';
import { sleep, within } from '../parts/wait.ts';
import type { Row, Stage } from '../row.ts';
import { conclude, namesOf, refused, startLoad } from './steps.ts';

/** Three gateways on one data folder, as `docker compose up --scale gateway=3` runs them. */

const gateways = 3;

const spoolLeft: Row = {
  name: 'shared-folder-killed',
  what: 'of three gateways on one data folder two are killed (-9) with records in their spools, and stay away',
  async run(stage) {
    const scene = await stage.open({ gateways, sharesFolder: true });
    const { workload, keys } = await startLoad(stage, scene, { clients: 6, repeating: 0.3 });
    await sleep(1000);
    scene.databaseProxy.takeAway('refused');
    await sleep(Math.min(stage.seconds, 4) * 1000);
    for (const victim of scene.gateways.slice(1)) await victim.kill();
    await scene.databaseProxy.restore();
    await sleep(1000);
    await workload.stop();
    stage.saw(workload.seen);
    await conclude(stage, scene, { keys, seen: workload.seen, settleSeconds: 45 });
  },
};

/** Several looks of the proxy, which come each second. */
const env = { HEADGATE_DRAIN_SECONDS: '5' };
const endMsMax = 90_000;

const rolling: Row = {
  name: 'rolling-restarts',
  what: 'three gateways behind HAProxy restart one after the other under load, all of them --kills times',
  missing: () => (findProgram('haproxy', process.env) === null ? 'there is no haproxy on PATH' : null),
  limitSeconds: 1200,
  async run(stage) {
    const scene = await stage.open({ gateways, sharesFolder: true, asleep: true, env });
    const ports = await Promise.all(scene.gateways.map(() => freePort()));
    for (const gateway of scene.gateways) await startReady(stage, gateway, ports);
    const proxy = await startProxy(stage, ports);
    const { workload, keys } = await startLoad(stage, scene, { leaving: 0, repeating: 0, where: () => [proxy] });
    for (let round = 0; round < stage.kills; round += 1) {
      for (const gateway of scene.gateways) {
        const code = await gateway.terminate(endMsMax * stage.slack);
        stage.must(code === 0, `gateway ${gateway.index} ended with ${code}`);
        await startReady(stage, gateway, ports);
      }
    }
    await workload.stop();
    stage.saw(workload.seen);
    const lost = refused(workload.seen);
    stage.must(lost.length === 0, `${lost.length} of ${workload.seen.length} were lost: ${namesOf(lost)}`);
    stage.note(`${stage.kills * gateways} restarts, ${workload.seen.length} requests, ${lost.length} lost`);
    await conclude(stage, scene, { keys, seen: workload.seen });
  },
};

async function startReady(stage: Stage, gateway: ChaosGateway, ports: readonly number[]): Promise<void> {
  await gateway.start({ PORT: String(ports[gateway.index]) });
  const isReady = async (): Promise<boolean> => (await callApi(gateway.url, '/readyz')).status === 200;
  const ready = await within(60_000 * stage.slack, isReady);
  if (ready === null) throw new Error(`gateway ${gateway.index} is not ready`);
}

/** The proxy of compose.gateways.yaml, with addresses of this machine in the place of Docker's names. */
async function startProxy(stage: Stage, ports: readonly number[]): Promise<Where> {
  const port = await freePort();
  const servers = ports.map((one, index) => `\tserver gateway${index} 127.0.0.1:${one} check`).join('\n');
  const parts: [RegExp, string][] = [
    [/# Docker's own name server[\s\S]*?(?=frontend api)/, ''],
    [/bind :8080/, `bind 127.0.0.1:${port}`],
    [/ init-addr .*$/m, ''],
    [/\tserver-template .*/, servers],
  ];
  const shipped = readFileSync(join(repository, 'compose/haproxy.cfg'), 'utf8');
  const text = parts.reduce((before, [pattern, by]) => {
    if (!pattern.test(before)) throw new Error(`compose/haproxy.cfg has nothing like ${String(pattern)}`);
    return before.replace(pattern, by);
  }, shipped);
  const path = join(stage.dir, 'haproxy.cfg');
  writeFileSync(path, text);
  const proxy = spawn(findProgram('haproxy', process.env) ?? '', ['-f', path], { stdio: 'ignore' });
  const left = endWithUs(proxy.pid ?? 0);
  stage.later(() => {
    proxy.kill('SIGKILL');
    left();
  });
  const where = { gateway: gateways, pid: proxy.pid ?? 0, url: `http://127.0.0.1:${port}` };
  const isUp = async (): Promise<boolean> => (await callApi(where.url, '/readyz')).status === 200;
  if ((await within(60_000, isUp)) === null) throw new Error('HAProxy does not serve');
  return where;
}

export const sharedFolderRows: readonly Row[] = [spoolLeft, rolling];
