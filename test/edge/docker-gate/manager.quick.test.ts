import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import { type DockerGate, startDockerGate } from '#edge/docker-gate/docker-gate.ts';
import { ownName } from './container-decisions.ts';
import { planned, policy, secretIds, serviceOf } from '#test/docker-gate/swarm-decisions.ts';

describe('the Docker gate with a Swarm manager', () => {
  const manager: Manager = { services: {}, secrets: {}, calls: [], bodies: {} };
  let server: Server | null = null;
  let gate: DockerGate | null = null;
  let dir = '';
  let logged = '';

  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), 'hg-gate-'));
    const socketPath = join(dir, 'docker.sock');
    server = createManager(manager).listen(socketPath);
    await once(server, 'listening');
    const log = createLog('debug', { write: (line) => void (logged += line) });
    gate = await startDockerGate({ host: '127.0.0.1', port: 0, socketPath, policy, log });
  });
  afterAll(async () => {
    await gate?.close();
    server?.close();
    rmSync(dir, { recursive: true, force: true });
  });

  function send(method: string, path: string, body?: object): Promise<Response> {
    const sent = body === undefined ? {} : { body: JSON.stringify(body) };
    return fetch(`http://127.0.0.1:${gate?.port}${path}`, { method, ...sent });
  }

  const spec = { Name: ownName, Labels: { 'headgate.managed': 'true' }, TaskTemplate: { ForceUpdate: 0 } };
  const one = { Replicated: { Replicas: 1 } };
  const none = { Replicated: { Replicas: 0 } };

  it('rejects services and secrets without our label', async () => {
    manager.services['prod'] = { Spec: { ...spec, Labels: { app: 'shop' }, Mode: one } };
    manager.secrets['prod'] = { Spec: { Name: 'prod', Labels: {} } };
    const foreign = { ...spec, Labels: { app: 'shop' }, Mode: none };
    expect((await send('POST', '/services/prod/update?version=7', foreign)).status).toBe(403);
    expect((await send('DELETE', '/services/prod')).status).toBe(403);
    expect((await send('GET', '/services/prod/logs?stdout=1')).status).toBe(403);
    expect((await send('DELETE', '/secrets/prod')).status).toBe(403);
    const asked = new Set(manager.calls.filter((call) => call.includes('prod')));
    expect([...asked]).toEqual(['GET /services/prod', 'GET /secrets/prod']);
  });

  it('rejects a service with the secret of another owner', async () => {
    const [id = ''] = secretIds;
    manager.secrets[id] = { Spec: { Name: ownName, Labels: { app: 'shop' } } };
    expect((await send('POST', '/services/create', serviceOf())).status).toBe(403);
    expect(manager.calls).not.toContain('POST /services/create');
  });

  it('rejects changes of a service other than its end, and of an unknown service', async () => {
    manager.services['ours'] = { Spec: { ...spec, Mode: one } };
    const others = [
      { ...spec, Mode: { Replicated: { Replicas: 2 } } },
      { ...spec, Mode: { Global: {} } },
      { ...spec, Mode: none, TaskTemplate: { ForceUpdate: 1 } },
      { ...spec, Mode: none, tasktemplate: { ContainerSpec: { Image: 'evil/miner' } } },
      { Name: ownName, Mode: none },
    ];
    for (const body of others) {
      expect((await send('POST', '/services/ours/update?version=7', body)).status).toBe(403);
    }
    expect((await send('POST', '/services/later/update?version=7', { ...spec, Mode: none })).status).toBe(404);
    expect(manager.calls.filter((call) => call.includes('update'))).toEqual([]);
  });

  it('forwards the end of a service with our label', async () => {
    manager.services['ending'] = { Spec: { ...spec, Mode: one } };
    const body = { ...spec, Mode: none };
    expect((await send('POST', '/services/ending/update?version=7', body)).status).toBe(200);
    expect((await send('DELETE', '/services/ending')).status).toBe(200);
    expect(JSON.parse(manager.bodies['POST /services/ending/update?version=7'] ?? 'null')).toEqual(body);
    expect(manager.calls).toContain('DELETE /services/ending');
  });

  it('forwards the ids that it checked, so that a renamed resource is not reached', async () => {
    for (const id of secretIds)
      manager.secrets[`${id}0`] = { ID: id, Spec: { Labels: { 'headgate.managed': 'true' } } };
    const body = planned({ env: { HF_TOKEN: '${NAME}' } }).body(
      secretIds.map((id) => `${id}0`),
      null,
    );
    expect((await send('POST', '/services/create', body)).status).toBe(200);
    expect(JSON.parse(manager.bodies['POST /services/create'] ?? 'null')).toMatchObject({
      TaskTemplate: {
        ContainerSpec: { Secrets: secretIds.map((id) => ({ SecretID: id })) },
        Networks: [{ Target: 'n1' }],
      },
    });
    manager.services['renamed'] = { ID: 'one', Spec: { ...spec, Mode: one } };
    await send('DELETE', '/services/renamed');
    expect(manager.calls).toContain('DELETE /services/one');
    expect(manager.calls).not.toContain('DELETE /services/renamed');
  });

  it('logs no value of a secret', async () => {
    const Data = Buffer.from('what nobody may read').toString('base64');
    const body = { Name: ownName, Labels: { 'headgate.managed': 'true' }, Data };
    expect((await send('POST', '/secrets/create', body)).status).toBe(200);
    for (const wrong of [{ Name: Data }, { Labels: { [Data]: Data } }, { Data: `${Data}!` }, { Templating: Data }]) {
      expect((await send('POST', '/secrets/create', { ...body, ...wrong })).status).toBe(403);
    }
    expect(logged).toContain('/secrets/create');
    expect(logged).not.toContain(Data);
  });
});

/** Objects of a manager, as its inspections show them, and its received requests. */
interface Manager {
  readonly services: Record<string, object>;
  readonly secrets: Record<string, object>;
  readonly calls: string[];
  /** By call, the last one of each. */
  readonly bodies: Record<string, string>;
}

/** Its ids are its names, but for the network. */
function createManager({ services, secrets, calls, bodies }: Manager): Server {
  const network = { Id: 'n1', Labels: { 'headgate.managed': 'true' } };
  const inspected = (kind: string, name: string): object | undefined => {
    if (kind === 'networks') return network;
    const found = (kind === 'services' ? services : secrets)[name];
    return found && { ID: name, ...found };
  };
  return createServer((incoming, answer) => {
    void text(incoming).then((body) => {
      const { method = '', url = '' } = incoming;
      calls.push(`${method} ${url}`);
      bodies[`${method} ${url}`] = body;
      const [, kind = '', id = ''] = /^\/(services|secrets|networks)\/([\w-]+)$/.exec(url) ?? [];
      const found = method === 'GET' && kind !== '' ? inspected(kind, id) : {};
      answer.writeHead(found === undefined ? 404 : 200, { 'content-type': 'application/json' });
      answer.end(JSON.stringify(found ?? { message: 'not found' }));
    });
  });
}
