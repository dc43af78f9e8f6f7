import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Body, errorOf, eventually, framesOf } from '#test/inference/inference-gateway.ts';
import type { TestGateway } from '#test/gateway.ts';
import { type LimitedKey, makeKey, openStore, storeNames, type StoreBench } from './limited-gateway.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** Budgets of projects, keys and end users: rejected requests, cut ones, and requests that may never run with them. */

async function done(answer: Response): Promise<Response> {
  const copy = answer.clone();
  await answer.text();
  return copy;
}

/** An organization of its own with a key of each kind. */
interface Place {
  readonly owner: string;
  readonly key: LimitedKey;
  readonly projectId: string;
  budget(fields: object, gateway?: TestGateway): Promise<Body>;
  read(id: string, query?: string): Promise<Body>;
  change(id: string, body: object | null): Promise<Body>;
}

async function openPlace(bench: StoreBench, usd = '1000'): Promise<Place> {
  const { key: owner } = await bench.organization(usd);
  const key = await makeKey(bench.gateway, {}, owner);
  const ask = async (path: string, options: object): Promise<Body> =>
    (await bench.gateway.request(path, { key: owner, ...options })).json();
  const { project_id: projectId } = await ask(`/v1/keys/${key.id}`, {});
  return {
    owner,
    key,
    projectId,
    async budget(fields, gateway = bench.gateway) {
      const body = { scope: { type: 'api_key', id: key.id }, period: 'monthly', alert_percents: [], ...fields };
      const answer = await gateway.request('/v1/budgets', { key: owner, body });
      const made: Body = await answer.json();
      expect(made).toMatchObject({ object: 'budget' });
      return made;
    },
    read: (id, query = '') => ask(`/v1/budgets/${id}${query}`, {}),
    change: (id, body) => ask(`/v1/budgets/${id}`, body === null ? { method: 'DELETE' } : { method: 'PATCH', body }),
  };
}

/** Ten output tokens, all of them made. */
const ten = { max_tokens: 10, ignore_eos: true };

/** The cost of one request of ten tokens, and its hold. */
async function costOf(bench: StoreBench): Promise<{ usd: number; heldUsd: number }> {
  const place = await openPlace(bench);
  const { id } = await place.budget({ amount: '100' });
  const dry = await place.key.chat(ten);
  await dry.text();
  const spent = await eventually(async () => {
    const { spent: usd } = await place.read(id);
    return usd === '0' ? null : usd;
  });
  const forecast: Body = await (
    await bench.gateway.request('/v1/chat/completions', {
      key: place.key.secret,
      headers: { 'x-headgate-dry-run': 'true' },
      body: { model: 'chat', messages: [{ role: 'user', content: 'Hello' }], ...ten },
    })
  ).json();
  // Holds are whole micro-dollars, rounded up.
  return { usd: Number(spent), heldUsd: Number(usdText(Number(forecast.worst_cost))) };
}

/** Asks until a request is rejected, and returns its error. */
async function useUp(ask: () => Promise<Response>): Promise<Body> {
  for (let times = 0; times < 500; times += 1) {
    const answer = await ask();
    if (answer.status !== 200) return errorOf(answer);
    await answer.text();
  }
  throw new Error('a budget was not used up by 500 requests');
}

/** A budget once nothing is held against it. */
const settled = (place: Place, id: string): Promise<Body> =>
  eventually(async () => {
    const read = await place.read(id);
    return read.held === '0' && read.spent !== '0' ? read : null;
  });

const usdText = (usd: number): string => (Math.ceil(Math.round(usd * 10_000_000) / 10) / 1_000_000).toFixed(6);

describe.each(storeNames)('budgets, in %s', (name) => {
  let bench: StoreBench;
  let cost: { usd: number; heldUsd: number };
  beforeAll(async () => {
    bench = await openStore(name);
    cost = await costOf(bench);
    return () => bench.close();
  });

  it('return 402 with budget and reset date when a hard budget is used up, and x-should-retry: false', async () => {
    const place = await openPlace(bench);
    const { id, resets_at: resetsAt } = await place.budget({ amount: '0.000001', period: 'daily' });
    const refused = await place.key.chat(ten);
    expect(refused.headers.get('x-should-retry')).toBe('false');
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(Number(refused.headers.get('retry-after'))).toBeLessThanOrEqual(86_400);
    const error = await errorOf(refused);
    expect(error).toMatchObject({ status: 402, code: 'budget_exceeded', type: 'billing_error' });
    expect(error.message).toContain('daily budget of this API key');
    expect(error.message).toContain(new Date(resetsAt * 1000).toISOString().slice(0, 10));
    expect(await place.read(id)).toMatchObject({ spent: '0', held: '0', remaining: '0.000001' });
  });

  it('return an Anthropic error on /v1/messages', async () => {
    const place = await openPlace(bench);
    await place.budget({ amount: '0.000001' });
    const body = { model: 'chat', max_tokens: 10, messages: [{ role: 'user', content: 'Hello' }] };
    const refused = await bench.gateway.request('/v1/messages', { key: place.key.secret, body });
    expect(refused.status).toBe(402);
    expect(await refused.json()).toMatchObject({
      type: 'error',
      error: { type: 'billing_error', code: 'budget_exceeded' },
    });
  });

  it('report budget_exceeded in a dry run', async () => {
    const place = await openPlace(bench);
    await place.budget({ amount: '0.000001', period: 'monthly' });
    const answer = await bench.gateway.request('/v1/chat/completions', {
      key: place.key.secret,
      headers: { 'x-headgate-dry-run': 'true' },
      body: { model: 'chat', messages: [{ role: 'user', content: 'Hello' }], ...ten },
    });
    expect(await answer.json()).toMatchObject({ admitted: false, refusal: 'budget_exceeded' });
  });

  it('never exceed a hard budget with 40 requests at once', async () => {
    const place = await openPlace(bench);
    const amount = usdText(cost.heldUsd * 5);
    const { id } = await place.budget({ amount });
    const statuses: number[] = [];
    await Promise.all(
      Array.from({ length: 40 }, async () => {
        const { status } = await done(await place.key.chat(ten));
        statuses.push(status);
      }),
    );
    expect(statuses.filter((status) => status === 200).length).toBeGreaterThanOrEqual(5);
    expect(statuses.filter((status) => status === 402).length).toBeGreaterThan(0);
    // Requests one after the other use it up to where the next would not be paid for.
    await useUp(() => place.key.chat(ten));
    const budget = await settled(place, id);
    expect(Number(budget.spent)).toBeLessThanOrEqual(Number(amount));
    expect(Number(budget.spent)).toBeGreaterThanOrEqual(5 * cost.usd);
  });

  it('never exceed any of three budgets with 500 requests at once: of a model, of the life, and a raised one', async () => {
    const place = await openPlace(bench);
    const usd = (requests: number): string => usdText(cost.heldUsd * requests);
    const ofModel = await place.budget({ period: 'weekly', models: ['chat'], amount: usd(30) });
    const ofLife = await place.budget({ period: 'total', amount: usd(25) });
    const raised = await place.budget({ period: 'yearly', amount: usd(10) });
    await place.change(raised.id, { raise: { amount: usd(10), until: Math.floor(Date.now() / 1000) + 3600 } });
    const asked = Array.from({ length: 500 }, async () => (await done(await place.key.chat(ten))).status);
    const served = (await Promise.all(asked)).filter((status) => status === 200);
    expect(served.length).toBeGreaterThan(10);
    const read = await Promise.all([ofModel, ofLife, raised].map(({ id }) => settled(place, id)));
    expect(new Set(read.map(({ spent }) => spent)).size).toBe(1);
    for (const { spent, amount, raise } of read) {
      expect(Number(spent)).toBeGreaterThan(10 * cost.usd);
      expect(Number(spent)).toBeLessThanOrEqual(Number(amount) + Number(raise?.amount ?? 0));
    }
    const error = await useUp(() => place.key.chat(ten));
    expect(error.message).toContain(`yearly budget of this API key, ${Number(usd(20))} USD`);
    await bench.gateway.request(`/v1/budgets/${raised.id}/reset`, { key: place.owner, method: 'POST' });
    expect((await place.key.chat(ten)).status).toBe(200);
    const refused = await useUp(() => place.key.chat(ten));
    expect(refused.message).toMatch(/total budget of this API key, \S+ USD, .* it does not reset by itself/);
    expect(Number((await settled(place, raised.id)).spent)).toBeLessThanOrEqual(Number(usd(6)));
  });

  it('apply to their models only, and end a raise by its time', async () => {
    const place = await openPlace(bench);
    await place.budget({ models: ['other'], amount: '0.000001' });
    expect((await done(await place.key.chat(ten))).status).toBe(200);
    const error = await errorOf(await place.key.chat({ ...ten, model: 'other' }));
    expect(error.message).toContain('monthly budget of this API key for the model other, 0.000001 USD');
    const { id } = await place.budget({ models: ['chat'], amount: '0.000001' });
    expect((await errorOf(await place.key.chat(ten))).code).toBe('budget_exceeded');
    await place.change(id, { raise: { amount: '1', until: Math.ceil(Date.now() / 1000) + 2 } });
    expect((await done(await place.key.chat(ten))).status).toBe(200);
    await eventually(async () => (await done(await place.key.chat(ten))).status === 402);
  });

  it('count the models of an end user', async () => {
    const place = await openPlace(bench);
    const scope = { type: 'user', id: null };
    await place.budget({ scope, period: 'yearly', models: ['chat'], amount: usdText(cost.heldUsd * 2) });
    await place.budget({ scope: { type: 'user', id: 'anna' }, period: 'yearly', amount: '1' });
    const refused = await useUp(() => place.key.chat({ ...ten, user: 'anna' }));
    expect(refused.message).toContain('yearly budget of this end user for the model chat');
    expect((await done(await place.key.chat({ ...ten, user: 'anna', model: 'other' }))).status).toBe(200);
  });

  it('hold a request against each of its budgets, and apply the smallest', async () => {
    const place = await openPlace(bench);
    const key = await place.budget({ amount: '100' });
    const project = await place.budget({
      scope: { type: 'project', id: place.projectId },
      period: 'monthly',
      amount: usdText(cost.heldUsd * 2),
    });
    await useUp(() => place.key.chat(ten));
    const error = await errorOf(await place.key.chat(ten));
    expect(error.message).toContain('monthly budget of this project');
    expect(Number((await place.read(project.id)).spent)).toBe(Number((await place.read(key.id)).spent));
  });

  it('reduce the output limit of a JSON answer to what the budget pays for', async () => {
    const place = await openPlace(bench);
    await place.budget({ amount: usdText(cost.heldUsd) });
    const answer = await place.key.chat({ max_tokens: 4000, ignore_eos: true });
    expect(answer.status).toBe(200);
    const cut = Number(answer.headers.get('x-headgate-max-tokens'));
    expect(cut).toBeGreaterThanOrEqual(9);
    expect(cut).toBeLessThan(4000);
    const body: Body = await answer.json();
    expect(body.usage.completion_tokens).toBeLessThanOrEqual(cut);
  });

  it('end a stream that exceeds its budget with a budget_exceeded frame', async () => {
    const place = await openPlace(bench);
    const amount = usdText(cost.heldUsd * 20);
    const { id } = await place.budget({ amount });
    const answer = await place.key.chat({ stream: true, max_tokens: 8000, ignore_eos: true, standin: { tpot_ms: 1 } });
    expect(answer.status).toBe(200);
    const frames = framesOf(await answer.text());
    const error = frames.find((frame) => frame.error !== undefined)?.error;
    expect(error).toMatchObject({ code: 'budget_exceeded', type: 'billing_error' });
    expect(error.message).toContain('used up');
    const budget = await settled(place, id);
    expect(Number(budget.spent)).toBeLessThanOrEqual(Number(amount));
  });

  it('let a stream continue when its budget is raised, and end it when its budget is lowered', async () => {
    const place = await openPlace(bench);
    const { id } = await place.budget({ amount: usdText(cost.heldUsd * 20) });
    const endless = { stream: true, max_tokens: 1500, ignore_eos: true, standin: { tpot_ms: 2 } };
    const going = place.key.chat(endless);
    const raised = await going;
    await place.change(id, { amount: '100' });
    expect(framesOf(await raised.text()).at(-1)).toBe('[DONE]');
    const second = await place.key.chat({ ...endless, max_tokens: 8000, standin: { tpot_ms: 5 } });
    expect(second.status).toBe(200);
    await place.change(id, { amount: '0.000001' });
    const codes = framesOf(await second.text()).flatMap((frame) =>
      frame.error === undefined ? [] : [frame.error.code],
    );
    expect(codes).toEqual(['budget_exceeded']);
    await place.change(id, null);
    expect((await done(await place.key.chat(ten))).status).toBe(200);
  });

  it('count requests that ran when the budget was created once they are settled', async () => {
    const place = await openPlace(bench);
    const stream = await place.key.chat({ stream: true, ...ten, max_tokens: 200, standin: { tpot_ms: 5 } });
    const { id } = await place.budget({ amount: '100' });
    expect((await done(await place.key.chat(ten))).status).toBe(200);
    expect(framesOf(await stream.text()).at(-1)).toBe('[DONE]');
    const { spent } = await place.read(id);
    expect(Number(spent)).toBeGreaterThan(2 * cost.usd);
    // So much and one request more: what ran is part of it, so that another one is not.
    await place.change(id, { amount: usdText(Number(spent) + cost.heldUsd / 2) });
    expect((await errorOf(await place.key.chat(ten))).code).toBe('budget_exceeded');
  });

  it('count each end user separately, and let a budget for one user replace the budget of each user', async () => {
    const place = await openPlace(bench);
    const each = await place.budget({ scope: { type: 'user', id: null }, amount: usdText(cost.heldUsd * 2) });
    await place.budget({ scope: { type: 'user', id: 'anna' }, amount: '100' });
    const users = Array.from({ length: 20 }, (_, index) => `user ${index} ü:!`);
    const first = await Promise.all(users.map(async (user) => done(await place.key.chat({ ...ten, user }))));
    expect(new Set(first.map(({ status }) => status))).toEqual(new Set([200]));
    const refused = await useUp(() => place.key.chat({ ...ten, user: users[0] }));
    expect(refused.message).toContain('monthly budget of this end user');
    for (let times = 0; times < 5; times += 1) {
      expect((await done(await place.key.chat({ ...ten, safety_identifier: 'anna', user: users[0] }))).status).toBe(
        200,
      );
    }
    expect((await done(await place.key.chat(ten))).status).toBe(200);
    const shown = await place.read(each.id, `?user=${encodeURIComponent(users[0] ?? '')}`);
    expect(Number(shown.spent)).toBeGreaterThan(0);
    expect(Number(shown.spent)).toBeLessThanOrEqual(Number(shown.amount));
    expect((await place.read(each.id)).spent).toBeNull();
    const named = { model: 'chat', max_tokens: 10, messages: [{ role: 'user', content: 'Hello' }] };
    const message = await bench.gateway.request('/v1/messages', {
      key: place.key.secret,
      body: { ...named, metadata: { user_id: users[0] } },
    });
    expect(message.status).toBe(402);
  });

  it('reject nothing without a budget or with a soft budget', async () => {
    const place = await openPlace(bench);
    const soft = await place.budget({ amount: '0.000001', mode: 'soft' });
    expect((await done(await place.key.chat(ten))).status).toBe(200);
    const other = await makeKey(bench.gateway, {}, place.owner);
    await place.budget({ amount: '0.000001' });
    expect((await done(await other.chat(ten))).status).toBe(200);
    expect(await place.read(soft.id)).toMatchObject({ held: null, remaining: '0', mode: 'soft' });
  });
});
