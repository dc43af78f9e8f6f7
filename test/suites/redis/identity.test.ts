import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { AdmitRequest, AdmitResult } from '#core/admission/contract/types.ts';
import { eventually } from '#test/inference/inference-gateway.ts';
import { findRedisServer, startServer, type TestRedis } from '#test/redis.ts';
import { AdmissionBench, heldOf, requestOf, type TestGateway, usedOf, type Wanted } from './admission-bench.ts';
import { openLine } from '#test/tcp-line.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** A Redis that is no longer the one that was written to, or that has lost what was written. */

const program = findRedisServer() ?? 'redis-server';
const endings: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of endings.splice(0).toReversed()) await end();
});

function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'hg-redis-'));
  endings.push(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A server writes what it saves, and what it gets of its master, into its folder. */
async function startRedis(folder = makeFolder(), port: number | null = null): Promise<TestRedis> {
  const redis = await startServer(program, ['--repl-diskless-sync-delay', '0', '--dir', folder], port);
  endings.push(() => redis.stop());
  return redis;
}

function openBench(url: string): AdmissionBench {
  const bench = new AdmissionBench(url);
  endings.push(() => bench.close());
  return bench;
}

function clientOf({ url }: Pick<TestRedis, 'url'>): Redis {
  const client = new Redis(url);
  client.on('error', () => undefined);
  endings.push(() => client.disconnect());
  return client;
}

const portOf = ({ url }: TestRedis): number => Number(new URL(url).port);

/** Admitted, booked and settled. */
async function spend(
  { books }: AdmissionBench,
  { admission }: TestGateway,
  organizationId: string,
  wanted: Wanted & { readonly microUsd: bigint },
): Promise<void> {
  const request = requestOf(organizationId, wanted);
  expect(await admission.admit(request)).toMatchObject({ ok: true });
  admission.settle(request.requestId, books.book(request, usedOf(wanted.microUsd, wanted.tokens)));
  await eventually(async () => (await heldOf({ admission }, organizationId)) === 0n);
}

/** The first answer that is not that nobody knows. */
async function decided({ admission }: TestGateway, request: AdmitRequest): Promise<AdmitResult> {
  return eventually(async () => {
    const result = await admission.admit(request);
    return !result.ok && result.code === 'billing_unavailable' ? null : result;
  });
}

describe('Redis with lost writes', () => {
  it('restored from an old snapshot spends no money or month twice, and keeps a key revoked', async () => {
    const folder = makeFolder();
    const redis = await startRedis(folder);
    const bench = openBench(redis.url);
    const gateway = await bench.open();
    const organizationId = bench.books.open(100n);
    const of = { keyId: 'month', limits: { monthlyTokenLimit: 100 } };
    const revoked = { organizationId, keyId: 'revoked' };
    await spend(bench, gateway, organizationId, { ...of, microUsd: 10n, tokens: 10 });
    await spend(bench, gateway, organizationId, { ...revoked, microUsd: 10n });
    await clientOf(redis).save();
    await spend(bench, gateway, organizationId, { ...of, microUsd: 70n, tokens: 80 });
    bench.books.revoke('revoked');
    await gateway.admission.revoked(revoked);
    await redis.stop();
    await startRedis(folder, portOf(redis));
    expect(await decided(gateway, requestOf(organizationId, { microUsd: 20n }))).toMatchObject({
      code: 'insufficient_funds',
      balancePicoUsd: 10_000_000n,
    });
    expect(await decided(gateway, requestOf(organizationId, { ...of, microUsd: 1n, tokens: 20 }))).toMatchObject({
      code: 'monthly_quota_exceeded',
      view: { remaining: 10 },
    });
    expect(await decided(gateway, requestOf(organizationId, { ...revoked, microUsd: 1n }))).toMatchObject({
      code: 'unauthorized',
    });
    expect(await decided(gateway, requestOf(organizationId, { ...of, microUsd: 10n, tokens: 10 }))).toMatchObject({
      ok: true,
    });
  });

  it('promoted from a replica without the last writes spends no money twice', async () => {
    const [first, second] = [await startRedis(), await startRedis()];
    const line = await openLine(portOf(first));
    endings.push(() => line.close());
    const replica = clientOf(second);
    await replica.replicaof('127.0.0.1', portOf(first));
    const bench = openBench(line.url);
    const gateway = await bench.open();
    const organizationId = bench.books.open(100n);
    await spend(bench, gateway, organizationId, { microUsd: 10n });
    await eventually(async () => (await replica.get(`${bench.prefix}:{${organizationId}}:known`)) !== null);
    // A master that is not there.
    await replica.replicaof('127.0.0.1', 1);
    await spend(bench, gateway, organizationId, { microUsd: 80n });
    await replica.replicaof('NO', 'ONE');
    expect(await replica.hget(`${bench.prefix}:{${organizationId}}:wallet`, 'b')).toBe('90');
    line.lead(portOf(second));
    expect(await decided(gateway, requestOf(organizationId, { microUsd: 20n }))).toMatchObject({
      code: 'insufficient_funds',
      balancePicoUsd: 10_000_000n,
    });
  });

  it("that was another server's replica meanwhile spends no money twice", async () => {
    const redis = await startRedis();
    const bench = openBench(redis.url);
    const gateway = await bench.open();
    const organizationId = bench.books.open(100n);
    await spend(bench, gateway, organizationId, { microUsd: 80n });
    const client = clientOf(redis);
    await client.hset(`${bench.prefix}:{${organizationId}}:wallet`, 'b', '90');
    await client.replicaof('127.0.0.1', 1);
    await client.replicaof('NO', 'ONE');
    expect(await decided(gateway, requestOf(organizationId, { microUsd: 30n }))).toMatchObject({
      code: 'insufficient_funds',
      balancePicoUsd: 20_000_000n,
    });
  });
});

describe('Redis flushed while a gateway is stopped', () => {
  async function open(leaseMs?: number) {
    const redis = await startRedis();
    const bench = openBench(redis.url);
    const opening = leaseMs === undefined ? {} : { leaseMs };
    const [awake, stopped] = [await bench.open(opening), await bench.open(opening)];
    const organizationId = bench.books.open(100n);
    const held = requestOf(organizationId, { microUsd: 60n });
    expect(await stopped.admission.admit(held)).toMatchObject({ ok: true });
    stopped.answers = false;
    await redis.flush();
    return { bench, awake, stopped, organizationId, held };
  }

  it('admits no requests until the stopped gateway has reported its holds', async () => {
    const { awake, stopped, organizationId } = await open();
    const request = requestOf(organizationId, { microUsd: 50n });
    for (let time = 0; time < 3; time += 1) {
      expect(await awake.admission.admit(request)).toEqual({ ok: false, code: 'billing_unavailable' });
    }
    stopped.answers = true;
    expect(await awake.admission.admit(request)).toMatchObject({ code: 'insufficient_funds', heldMicroUsd: 60n });
    expect(await awake.admission.admit(requestOf(organizationId, { microUsd: 40n }))).toMatchObject({ ok: true });
  });

  it('uses the ledger once the stopped gateway has lost its lease, and again after it wakes and charges', async () => {
    const { bench, awake, stopped, organizationId, held } = await open();
    const request = requestOf(organizationId, { microUsd: 100n });
    expect(await awake.admission.admit(request)).toEqual({ ok: false, code: 'billing_unavailable' });
    stopped.lives = false;
    expect(await awake.admission.admit(request)).toMatchObject({ ok: true, heldMicroUsd: 100n });
    awake.admission.settle(request.requestId, bench.books.book(request, usedOf(50n)));
    await eventually(async () => (await heldOf(awake, organizationId)) === 0n);
    stopped.admission.settle(held.requestId, bench.books.book(held, usedOf(60n)));
    await eventually(async () => {
      const result = await awake.admission.check(requestOf(organizationId, { microUsd: 1n }));
      return !result.ok && result.code === 'insufficient_funds' && result.balancePicoUsd === 0n;
    });
  });

  it('waits for the stopped gateway only until its leases expire', async () => {
    const { awake, organizationId } = await open(1000);
    const request = requestOf(organizationId, { microUsd: 40n });
    expect(await awake.admission.admit(request)).toEqual({ ok: false, code: 'billing_unavailable' });
    expect(await decided(awake, request)).toMatchObject({ ok: true });
  });
});

describe('a gateway frozen until its hold has expired', () => {
  it('charges by the ledger only, and the balance is read again', async () => {
    const redis = await startRedis();
    const bench = openBench(redis.url);
    const [awake, sleeper] = [await bench.open({ leaseMs: 300 }), await bench.open({ leaseMs: 300 })];
    const organizationId = bench.books.open(100n);
    const slept = requestOf(organizationId, { microUsd: 60n });
    expect(await sleeper.admission.admit(slept)).toMatchObject({ ok: true });
    sleeper.answers = false;
    sleeper.lives = false;
    await eventually(async () => {
      await awake.admission.sweep();
      return (await heldOf(awake, organizationId)) === 0n;
    });
    await spend(bench, awake, organizationId, { microUsd: 90n });
    sleeper.answers = true;
    sleeper.lives = true;
    // It holds again what it has running, more than there is; what it is charged beyond the balance is written off.
    await sleeper.admission.renew();
    expect(await decided(awake, requestOf(organizationId, { microUsd: 1n }))).toMatchObject({ heldMicroUsd: 60n });
    bench.books.book(slept, usedOf(60n));
    sleeper.admission.settle(slept.requestId, usedOf(60n));
    await eventually(async () => (await heldOf(awake, organizationId)) === 0n);
    expect(await awake.admission.admit(requestOf(organizationId, { microUsd: 1n }))).toMatchObject({
      code: 'insufficient_funds',
      balancePicoUsd: 0n,
    });
    bench.books.credit(organizationId, 5n);
    await awake.admission.credited(organizationId, 5_000_000n);
    expect(await awake.admission.admit(requestOf(organizationId, { microUsd: 5n }))).toMatchObject({ ok: true });
  });
});
