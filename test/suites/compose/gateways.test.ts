import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { composeCommand } from '../../support/compose.ts';
import { liftLimits } from '../../support/gateway.ts';
import { readmeBlocks, startStack, type Stack } from './stack.ts';

/** Several gateways of one service, behind the proxy of compose.gateways.yaml. */

let stack: Stack;
let renew = '';
beforeAll(async () => {
  stack = await startStack({});
  await stack.shell(stack.quickStart);
  await liftLimits(stack.url, stack.key);
  const [scale = '', renewing = ''] = readmeBlocks(stack.folder, 'Several gateways');
  renew = renewing;
  await stack.shell(scale);
}, 900_000);
afterAll(() => stack?.stop());

interface Container {
  readonly Id: string;
}

async function gatewayIds(): Promise<string[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: ['com.docker.compose.service=gateway'] }));
  const found = (await stack.docker.call('GET', `/containers/json?filters=${filters}`)) as Container[];
  return found.map(({ Id: id }) => id);
}

const docker = (line: string): Promise<string> => stack.shell(`docker ${line}`);

/** A chat with as many tokens, each of which takes 20 ms. */
async function chat(stream: boolean, tokens: number): Promise<string> {
  const answer = await stack.ask('/v1/chat/completions', {
    model: 'standin-chat',
    messages: [{ role: 'user', content: 'Hello' }],
    stream,
    max_tokens: tokens,
    standin: { tpot_ms: 20, output_tokens: tokens, finish: 'length' },
  });
  const text = await answer.text();
  if (answer.status !== 200) return `${answer.status} ${text.slice(0, 200)}`;
  return text.includes(stream ? 'data: [DONE]' : '"usage"') ? 'whole' : `cut: ${text.slice(-100)}`;
}

const lossOf = (asked: Promise<string>): Promise<string> => asked.catch((error: unknown) => `lost: ${String(error)}`);

async function runningOn(id: string): Promise<number> {
  const script = `fetch('http://127.0.0.1:9464/metrics').then((answer) => answer.text()).then(console.log)`;
  const text = await docker(`exec ${id} node -e "${script}"`);
  return Number(/^headgate_requests_in_flight (\d+)/m.exec(text)?.[1] ?? 0);
}

describe('three gateways on one volume', () => {
  it('run side by side, each in a folder of its own', async () => {
    const ids = await gatewayIds();
    expect(ids).toHaveLength(3);
    await expect.poll(() => docker(`exec ${ids[0]} ls /var/lib/headgate/gateways`)).toBe('1\n2\n');
    for (const id of ids) {
      const ready = `fetch('http://localhost:8080/readyz').then(({ status }) => console.log(status), String)`;
      await expect.poll(() => docker(`exec ${id} node -e "${ready}"`)).toBe('200\n');
    }
  });

  it('lose none of 500 requests and more while they are renewed one after the other', async () => {
    const before = await gatewayIds();
    const [program = '', ...words] = composeCommand(process.env) ?? [];
    const files = '--env-file compose/.env -f compose/compose.yaml -f compose/overlay.yaml';
    const line = renew.replace('-f compose/compose.yaml', files);
    let isRenewed = false;
    const renewing = stack.shell(`export COMPOSE='${[program, ...words].join(' ')}'\n${line}`).finally(() => {
      isRenewed = true;
    });
    const outcomes: string[] = [];
    const client = async (stream: boolean): Promise<void> => {
      while (!isRenewed || outcomes.length < 500) outcomes.push(await lossOf(chat(stream, stream ? 20 : 5)));
    };
    await Promise.all([client(true), client(true), client(false), client(false), client(false)]);
    await renewing;
    expect(outcomes.filter((outcome) => outcome !== 'whole')).toEqual([]);
    const after = await gatewayIds();
    expect(after).toHaveLength(3);
    expect(before.filter((id) => after.includes(id))).toEqual([]);
  });

  it('lose what one of them runs when it is killed, and nothing else', async () => {
    const [victim = ''] = await gatewayIds();
    const streams = Array.from({ length: 9 }, () => lossOf(chat(true, 1000)));
    await expect.poll(() => runningOn(victim)).toBeGreaterThan(0);
    const running = await Promise.all((await gatewayIds()).map(runningOn));
    await docker(`kill ${victim}`);
    const next = Array.from({ length: 100 }, (_, index) => lossOf(chat(index % 2 === 0, 5)));
    expect((await Promise.all(next)).filter((outcome) => outcome !== 'whole')).toEqual([]);
    const lost = (await Promise.all(streams)).filter((outcome) => outcome !== 'whole');
    expect(lost).toHaveLength(running[0] ?? 0);
  });
});
