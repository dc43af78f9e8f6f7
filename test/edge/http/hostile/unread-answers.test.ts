import { expect, it } from 'vitest';
import { engineFile } from '#test/programs/gateway-process.ts';
import {
  head,
  hear,
  post,
  refusalOf,
  serveCustomer,
  stubborn,
  tell,
  until,
  useVictim,
  type Heard,
} from './attacked-gateway.ts';

const embedding = engineFile('embed', { flags: ['--runner', 'pooling', '--convert', 'embed'] });
const victim = useVictim({
  engines: { chat: engineFile('chat'), embed: embedding.replace('task_type: chat', 'task_type: embedding') },
  // A quarter of it is the share of a key: three of the answers below.
  env: { HEADGATE_MAX_BODIES_BYTES: '134217728' },
});
const path = '/v1/embeddings';
/** Its answer has about 11 MB. */
const body = JSON.stringify({ model: 'embed', input: Array.from({ length: 1000 }, (_, index) => `text ${index}`) });

/** A request whose answer is not read beyond its head. */
function askAndLeaveUnread(): { heard: Heard; close: () => void } {
  const socket = stubborn(victim().url);
  const heard = hear(socket);
  socket.on('data', () => socket.pause());
  const type = { authorization: `Bearer ${victim().attacker.key}`, 'content-type': 'application/json' };
  socket.write(`${head('POST', path, { ...type, 'content-length': body.length })}${body}`);
  return { heard, close: () => socket.destroy() };
}

it('returns 429 to a key whose unread answers fill its share of the memory', async () => {
  victim().peakMiB();
  const before = victim().memoryMiB();
  const unread: ReturnType<typeof askAndLeaveUnread>[] = [];
  const attack = (async () => {
    for (let count = 0; count < 12; count += 1) {
      const one = askAndLeaveUnread();
      unread.push(one);
      await until(() => one.heard.text !== '');
    }
  })();
  await serveCustomer(victim(), 'while answers of 11 MB are asked for and not read', 50);
  await attack;
  const statuses = unread.map(({ heard }) => heard.text.slice(9, 12));
  tell(`${statuses.join(' ')}; memory: ${before} MiB before, at most ${victim().peakMiB()} MiB`);
  expect(statuses.slice(0, 3)).toEqual(['200', '200', '200']);
  expect(statuses.slice(5)).toEqual(Array.from({ length: 7 }, () => '429'));
  const refused = await post(victim().url, path, victim().attacker.key, body);
  expect(refusalOf(refused).code).toBe('concurrency_limit_exceeded');
  for (const { close } of unread) close();
  let status = 429;
  while (status === 429) ({ status } = await post(victim().url, path, victim().attacker.key, body));
  expect(status).toBe(200);
});
