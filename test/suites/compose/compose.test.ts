import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startStack, type Stack } from './stack.ts';

/** A stand-in engine as a container of its own, from the gateway's image. */
const engineFile = `
version: 1
id: container-chat
name: Container Chat
hugging_face_id: headgate/container-chat
task_type: chat
context_length: 8192
pricing: {input_per_million: 0.10, cached_input_per_million: 0.05, output_per_million: 0.40}
driver: docker
kind: vllm
image: headgate:headgate-test
entrypoint: [node, engines/standin/main.ts, serve]
args: [headgate/container-chat, --max-model-len, "8192"]
idle_seconds: 3600
start_timeout_seconds: 60
`;

interface Container {
  readonly Id: string;
  readonly Labels: Readonly<Record<string, string>>;
  readonly Ports: readonly object[];
}

let stack: Stack;
beforeAll(async () => {
  stack = await startStack({ 'container-chat.yaml': engineFile });
  await stack.compose('up', '-d', '--build');
  await stack.ready();
}, 600_000);
afterAll(() => stack?.stop());

async function containers(label: string): Promise<readonly Container[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [label] }));
  return (await stack.docker.call('GET', `/containers/json?filters=${filters}`)) as Container[];
}

async function serviceId(service: string): Promise<string> {
  const [found] = await containers(`com.docker.compose.service=${service}`);
  if (found === undefined) throw new Error(`The service ${service} does not run.`);
  return found.Id;
}

async function chat(model: string): Promise<{ status: number; text: string; requestId: string }> {
  const messages = [{ role: 'user', content: 'Hello' }];
  const answer = await stack.ask('/v1/chat/completions', { model, messages, max_tokens: 8 });
  return { status: answer.status, text: await answer.text(), requestId: answer.headers.get('x-request-id') ?? '' };
}

async function balance(): Promise<string> {
  const wallet = (await (await stack.ask('/v1/wallet')).json()) as { balance: string };
  return wallet.balance;
}

/** Runs a program of Node's inside the gateway's container; what it prints. */
function inGateway(script: string): Promise<string> {
  return stack.compose('exec', '-T', 'gateway', 'node', '-e', script);
}

const callGate = (path: string, body: object): Promise<string> =>
  inGateway(`
    fetch('http://docker-gate:2375${path}', {method: 'POST', headers: {'content-type': 'application/json'},
      body: ${JSON.stringify(JSON.stringify(body))}}).then(async (answer) => console.log(answer.status, await answer.text()))`);

describe('the compose files on a real Docker engine', () => {
  it('refuse the gateway a container that could reach the machine', async () => {
    const body = {
      Image: 'headgate:headgate-test',
      Labels: { 'headgate.managed': 'true' },
      HostConfig: { Privileged: true },
    };
    expect(await callGate('/containers/create?name=headgate-x', body)).toMatch(/^403 /);
  });

  it('refuse the gateway what is not its own', async () => {
    expect(await callGate(`/containers/${await serviceId('postgres')}/stop`, {})).toMatch(/^403 /);
    expect(await callGate('/containers/none/stop', {})).toMatch(/^404 /);
  });

  it('run the gateway without root, and its files cannot be written', async () => {
    const printed = await inGateway(`
      const write = () => { try { require('fs').writeFileSync('/app/src/x', ''); return 'written'; } catch ({code}) { return code; } };
      console.log(process.getuid(), write())`);
    expect(printed).toContain('10001 EROFS');
  });

  it('answer a chat request by a process of the gateway', async () => {
    expect(await chat('standin-chat')).toMatchObject({ status: 200 });
  });

  it('answer a chat request by a container that publishes nothing, and bill it', async () => {
    const { status, text, requestId } = await chat('container-chat');
    expect(text).toContain('"usage"');
    expect(status).toBe(200);
    const record = await (await stack.ask(`/v1/usage/requests/${requestId}`)).json();
    expect(record).toMatchObject({ model: 'container-chat', status: 200 });
    const [engine, ...more] = await containers('headgate.engine=container-chat');
    expect(more).toEqual([]);
    expect(JSON.stringify(engine?.Ports)).not.toContain('PublicPort');
  });

  it('find the engine again when the gateway was restarted', async () => {
    const before = await containers('headgate.engine=container-chat');
    await stack.compose('restart', 'gateway');
    await stack.ready();
    expect(await chat('container-chat')).toMatchObject({ status: 200 });
    const after = await containers('headgate.engine=container-chat');
    expect(after.map(({ Id: id }) => id)).toEqual(before.map(({ Id: id }) => id));
  });

  it('bring the books back from a backup by the commands of the README', async () => {
    await chat('standin-chat');
    const kept = await balance();
    const [backup = '', restore = ''] = backupCommands();
    await stack.shell(backup);
    await chat('standin-chat');
    expect(await balance()).not.toBe(kept);
    await stack.shell(restore);
    await stack.ready();
    expect(await balance()).toBe(kept);
    expect(await chat('standin-chat')).toMatchObject({ status: 200 });
  });
});

/** The two halves of the block under "Backups", word for word but for the tool's name and the dump's. */
function backupCommands(): string[] {
  const readme = readFileSync(join(stack.folder, 'compose/README.md'), 'utf8');
  const block = /## Backups[\s\S]*?```sh\n([\s\S]*?)```/.exec(readme)?.[1] ?? '';
  const command = stack.composeLine;
  const lines = block
    .replaceAll('docker compose -f compose/compose.yaml', command)
    .replaceAll(/headgate-\S+\.dump/g, 'books.dump')
    .replaceAll('headgate-$(date +%F).dump', 'books.dump');
  return lines.split('\n\n');
}
