import { parseArgs } from 'node:util';
import { median } from './statistics.ts';

/**
 * `npm run bench:pages -- --link "$(npx headgate welcome)"`: how long each page of the portal takes to be made, over
 * HTTP, at the gateway that the link is of. The link signs in, and is used up. `npm run seed:usage` makes a history.
 * `--tries` of each page are asked one after the other, after one that does not count.
 */

const { values } = parseArgs({ options: { link: { type: 'string' }, tries: { type: 'string', default: '25' } } });
const tries = Math.max(1, Number(values.tries));
const link = /https?:\/\/\S+\/welcome\?token=\S+/.exec(values.link ?? '')?.[0];
if (link === undefined) throw new Error('--link must be what "npx headgate welcome" prints');
const { origin, searchParams } = new URL(link);

async function signIn(): Promise<string> {
  const headers = { origin, 'content-type': 'application/x-www-form-urlencoded', accept: 'text/html' };
  const body = new URLSearchParams({ token: searchParams.get('token') ?? '' });
  const answer = await fetch(new URL('/welcome', origin), { method: 'POST', headers, body, redirect: 'manual' });
  const [cookie] = answer.headers.getSetCookie();
  if (cookie === undefined) throw new Error(`the link signs nobody in: ${answer.status}; was it used before?`);
  return cookie.split(';')[0] ?? '';
}

const cookie = await signIn();

async function ask(path: string): Promise<{ readonly ms: number; readonly text: string }> {
  const since = performance.now();
  const answer = await fetch(new URL(path, origin), { headers: { cookie, accept: 'text/html' }, redirect: 'manual' });
  const text = await answer.text();
  const ms = performance.now() - since;
  if (answer.status !== 200) throw new Error(`${path}: ${answer.status}`);
  return { ms, text };
}

/** Prints the fastest, the middle and the slowest. @returns the last page */
async function measure(path: string): Promise<string> {
  let { text } = await ask(path);
  const times: number[] = [];
  for (let index = 0; index < tries; index += 1) {
    const asked = await ask(path);
    times.push(asked.ms);
    ({ text } = asked);
  }
  const figures = [Math.min(...times), median(times), Math.max(...times)].map((ms) => ms.toFixed(1).padStart(8));
  console.log(`${figures.join('')} ms  ${path}`);
  return text;
}

const firstIn = (text: string, pattern: RegExp): string[] => [pattern.exec(text)?.[1] ?? []].flat();

console.log('     min  median     max');
const overview = await measure('/');
const menu = [...overview.matchAll(/href="(\/portal\/[a-z]+)"/g)].map(([, path]) => path ?? '');
// Each page of the menu, and of each list the first thing on it.
for (const path of new Set(menu.filter((one) => one !== '/portal/usage'))) {
  const list = await measure(path);
  for (const one of firstIn(list, new RegExp(`href="(${path}/(?!new")[^"?#/]+)"`))) await measure(one);
}
for (const path of ['/portal/keys/new', '/portal/costs/rates', '/portal/costs/margins']) await measure(path);
for (const query of ['organizations=all', 'action=wallet.credited']) await measure(`/portal/audit?${query}`);
for (const range of ['today', '7', '30', '90']) await measure(`/portal/usage?range=${range}`);
for (const by of ['key_id', 'project_id']) await measure(`/portal/usage?range=90&by=${by}`);
for (const outcome of ['completed', 'failed']) await measure(`/portal/usage?range=90&outcome=${outcome}`);
const usage = await measure('/portal/usage?range=90&measure=tokens');
for (const path of firstIn(usage, /href="(\/portal\/usage\/[0-9a-f-]{36})"/)) await measure(path);
for (const path of firstIn(usage, /href="(\/portal\/usage\?[^"]*cursor=[^"]*)"/))
  await measure(path.replaceAll('&amp;', '&'));
for (const type of ['credit', 'usage', 'adjustment']) await measure(`/portal/wallet?type=${type}`);
