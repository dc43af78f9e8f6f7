import {
  type AdmitRequest,
  type HardBudget,
  heldFor,
  type ProjectLimit,
  type Settlement,
} from '#core/admission/contract/contract.ts';
import type { Reply } from './admission-store.ts';
import { modelText, type OwnHold, ownModel, type Standing, type UnregisteredUse } from './own-hold.ts';
import { expiredScript, registerScript, renewScript } from './hold-scripts.ts';
import { registerModelScript } from './model-scripts.ts';
import { type How, nothingUsed, type RequestRef, Settlements, type SettlementsOptions } from './settlements.ts';

export interface HoldLeasesOptions extends SettlementsOptions {
  readonly gatewayId: string;
  readonly findSettled: (
    organizationId: string,
    requestIds: readonly string[],
  ) => Promise<ReadonlyMap<string, Settlement>>;
  readonly liveGateways: () => Promise<ReadonlySet<string>>;
}

export interface AddedHold {
  readonly heldMicroUsd: bigint;
  readonly reservedTokens: number;
  readonly beganMs: number;
  readonly standing: Standing;
  readonly budgets: readonly HardBudget[];
  readonly limit: ProjectLimit | null;
}

interface Held {
  microUsd: bigint;
}

/** A hold whose lease expired, as Redis has it. */
interface Expired {
  readonly requestId: string;
  readonly keyId: string;
  readonly gatewayId: string;
  readonly isSpooled: boolean;
}

const sweepBatchMax = 100;
/** Maximum number of holds that are registered in one call. */
const registerBatchMax = 200;
/** An organization whose balance was not read for this long has nothing left to sweep. */
const indexKeptMs = 2 * 24 * 3_600_000;

/**
 * Holds and slots of the requests that run in this gateway. They are leases: if a gateway stops renewing them, its
 * slots expire by the clock. A hold expires only by the database's records, and only once its gateway is known to be
 * gone.
 */
export class HoldLeases {
  readonly settlements: Settlements;
  readonly #options: HoldLeasesOptions;
  readonly #own = new Map<string, OwnHold>();
  /** Amounts held by organization, and by organization and slot, without entries of zero. */
  readonly #held = new Map<string, Held>();

  constructor(options: HoldLeasesOptions) {
    this.#options = options;
    this.settlements = new Settlements(options);
  }

  add(request: AdmitRequest, added: AddedHold): void {
    const { organizationId, keyId, limits, estimatedTokens, requestId, spender } = request;
    const { budgets, limit } = added;
    const hold: OwnHold = {
      organizationId,
      keyId,
      tokensPerMinute: limits.tokensPerMinute,
      spender,
      slots: budgets.length === 0 ? noSlots : budgets.map(({ slot }) => slot),
      formerSlots: noSlots,
      modelId: request.model,
      model: ownModel(limit, estimatedTokens),
      beganMs: added.beganMs,
      estimatedTokens,
      reservedTokens: added.reservedTokens,
      heldMicroUsd: added.heldMicroUsd,
      isSpooled: false,
      isSettled: false,
      standing: added.standing,
      isRaised: false,
    };
    this.#own.set(requestId, hold);
    this.#count(hold, added.heldMicroUsd);
  }

  /** True if Redis has all holds and their raises. */
  get isAllRegistered(): boolean {
    for (const { standing, isRaised } of this.#own.values()) if (standing !== 'registered' || isRaised) return false;
    return true;
  }

  /** Adds to the hold of a request. @param isRegistered true if Redis has already added the same amount */
  raise(hold: OwnHold, moreMicroUsd: bigint, isRegistered: boolean): void {
    if (hold.isSettled) return;
    hold.heldMicroUsd += moreMicroUsd;
    if (!isRegistered) hold.isRaised = true;
    this.#count(hold, moreMicroUsd);
  }

  /** Replaces the budgets that a request counts against. */
  changeSlots(hold: OwnHold, slots: readonly string[]): void {
    const { heldMicroUsd } = hold;
    if (!hold.isSettled) this.#count(hold, -heldMicroUsd);
    hold.formerSlots = [...new Set([...hold.formerSlots, ...hold.slots])];
    hold.slots = slots.length === 0 ? noSlots : slots;
    if (!hold.isSettled) this.#count(hold, heldMicroUsd);
  }

  /** Returns the micro-dollars that this gateway holds for an organization. */
  heldMicroUsd(organizationId: string): bigint {
    return this.#held.get(organizationId)?.microUsd ?? 0n;
  }

  /** Returns the micro-dollars that this gateway holds against a budget. */
  heldOfSlot(organizationId: string, slot: string): bigint {
    return this.#held.get(`${organizationId} ${slot}`)?.microUsd ?? 0n;
  }

  holdsOf(organizationId: string): ReadonlyMap<string, OwnHold> {
    return new Map([...this.#own].filter(([, hold]) => hold.organizationId === organizationId));
  }

  organizations(): ReadonlySet<string> {
    return new Set([...this.#own.values()].map(({ organizationId }) => organizationId));
  }

  /** Returns the number of requests of a key that run here. */
  running(keyId: string): number {
    let running = 0;
    for (const hold of this.#own.values()) if (hold.keyId === keyId && !hold.isSpooled) running += 1;
    return running;
  }

  find(requestId: string): OwnHold | undefined {
    return this.#own.get(requestId);
  }

  keysRunning(): readonly string[] {
    const running = [...this.#own.values()].filter(({ isSpooled }) => !isSpooled);
    return [...new Set(running.map(({ keyId }) => keyId))];
  }

  /** Shrinks a hold to the coming charge. @returns the hold as it was, null if there is none that can be spooled */
  spooled(requestId: string, used: Settlement): OwnHold | null {
    const hold = this.#own.get(requestId);
    if (hold === undefined || hold.isSpooled) return null;
    const before = { ...hold };
    hold.isSpooled = true;
    hold.estimatedTokens = used.tokens;
    hold.reservedTokens = used.tokens;
    if (hold.model !== null) hold.model = { ...hold.model, reservedTokens: used.tokens };
    this.raise(hold, heldFor(used.chargedPicoUsd) - hold.heldMicroUsd, true);
    const { organizationId, keyId } = hold;
    // A hold that Redis does not have yet is registered in its state at that time.
    if (hold.standing !== 'local') this.settlements.add({ requestId, organizationId, keyId, used, how: 'spool' });
    return before;
  }

  /** Removes a hold. @returns the removed hold, null if there was none */
  settle(requestId: string, used: Settlement): OwnHold | null {
    const hold = this.#own.get(requestId);
    if (hold === undefined) return null;
    this.#own.delete(requestId);
    hold.isSettled = true;
    const { organizationId, keyId, standing } = hold;
    this.#count(hold, -hold.heldMicroUsd);
    const how = standing === 'unsure' ? howUnsure(hold) : 'settle';
    if (standing !== 'local') this.settlements.add({ requestId, organizationId, keyId, used, how });
    return hold;
  }

  settleReplayed(ref: RequestRef, used: Settlement): void {
    this.settlements.add({ ...ref, used, how: 'replay' });
  }

  has(requestId: string): boolean {
    return this.#own.has(requestId);
  }

  async renew(): Promise<void> {
    await this.settlements.retry();
    const groups = new Map<string, { ref: OwnHold; ids: string[] }>();
    for (const [id, hold] of this.#own) {
      const group = groups.get(hold.keyId) ?? { ref: hold, ids: [] };
      group.ids.push(id);
      groups.set(hold.keyId, group);
    }
    // All calls leave at once, in one pipeline.
    await Promise.all([...groups.values()].map(({ ref, ids }) => this.#renewKey(ref, ids)));
  }

  /**
   * Registers everything that this gateway has for an organization with Redis.
   * @param unregistered ended use of its keys that Redis does not have
   * @param ofModels ended use of models with project limits that Redis does not have
   */
  async register(
    organizationId: string,
    unregistered: readonly UnregisteredUse[] = [],
    ofModels: readonly UnregisteredUse[] = [],
  ): Promise<void> {
    const byKey = new Map<string, [string, OwnHold][]>(unregistered.map(({ keyId }) => [keyId, []]));
    for (const [id, hold] of this.#own) {
      if (hold.organizationId !== organizationId) continue;
      const holds = byKey.get(hold.keyId) ?? [];
      holds.push([id, hold]);
      byKey.set(hold.keyId, holds);
    }
    const writing = [...byKey].flatMap(([keyId, holds]) => {
      const use = unregistered.find((one) => one.keyId === keyId) ?? null;
      return this.#registerKey(organizationId, keyId, holds, use);
    });
    for (const use of ofModels) writing.push(this.#registerModel(organizationId, use));
    this.settlements.holdBack(organizationId, writing);
    const results = await Promise.allSettled(writing);
    const failed = results.find((result) => result.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  }

  async sweep(): Promise<void> {
    const { store, liveGateways } = this.#options;
    const oldMs = Math.floor((await store.nowMs()) - indexKeptMs);
    await store.redis.command('ZREMRANGEBYSCORE', store.index, '-inf', String(oldMs));
    const organizationIds = (await store.redis.command('ZRANGE', store.index, '0', '-1')) as string[];
    let live: ReadonlySet<string> | null = null;
    for (const organizationId of organizationIds) {
      const { leases, holds } = store.organization(organizationId);
      const { rest } = await store.run(expiredScript, [leases, holds], [String(sweepBatchMax)]);
      if (rest.length === 0) continue;
      live ??= await liveGateways();
      await this.#sweepHolds(organizationId, expiredOf(rest), live);
    }
  }

  close(): Promise<void> {
    return this.settlements.close();
  }

  async #renewKey(ref: OwnHold, ids: readonly string[]): Promise<void> {
    const { rest } = await this.#extendLeases(ref.organizationId, ref.keyId, ids);
    const isMissing = rest.some((id) => this.#own.has(id)) || ids.some((id) => this.#own.get(id)?.isRaised);
    if (isMissing) await this.register(ref.organizationId);
  }

  #registerKey(
    organizationId: string,
    keyId: string,
    holds: readonly [string, OwnHold][],
    unregistered: UnregisteredUse | null,
  ): readonly Promise<unknown>[] {
    const { store, leaseMs, gatewayId } = this.#options;
    const { wallet, holds: notes, money, leases, loading, budgets, models, days } = store.organization(organizationId);
    const { slots, monthLoading, use, registeredKey: registered } = store.use(organizationId, keyId);
    const ofKey = [slots, loading, monthLoading, use, `${registered}${gatewayId}`];
    const keys = [wallet, notes, money, leases, ...ofKey, budgets, models, days];
    const tokensPerMinute = unregistered?.tokensPerMinute ?? holds[0]?.[1].tokensPerMinute ?? null;
    const calls: Promise<unknown>[] = [];
    for (let from = 0; from === 0 || from < holds.length; from += registerBatchMax) {
      const some = holds.slice(from, from + registerBatchMax);
      const { message, requests, tokens, beganMs } = unregistered ?? noUnregisteredUse;
      const args = [leaseMs, message, requests, tokens, Math.floor(beganMs), unregistered === null ? '0' : '1'];
      const rest = some.flatMap(([id, hold]) => this.#registrationOf(id, hold));
      calls.push(
        this.#trackRegistration(
          some,
          store.run(registerScript, keys, [...args, text(tokensPerMinute), ...rest].map(String)),
        ),
      );
    }
    return calls;
  }

  #registerModel(organizationId: string, { keyId: slot, ...use }: UnregisteredUse): Promise<unknown> {
    const { store, gatewayId } = this.#options;
    const { models, days, loading } = store.organization(organizationId);
    const { message, tokensPerMinute, requests, tokens, beganMs } = use;
    const args = [message, slot, text(tokensPerMinute), requests, tokens, Math.floor(beganMs)].map(String);
    const registeredKey = `${store.use(organizationId, slot).registeredKey}${gatewayId}`;
    return store.run(registerModelScript, [models, days, registeredKey, loading], args);
  }

  #registrationOf(id: string, hold: OwnHold): readonly (string | number | bigint)[] {
    const { keyId, estimatedTokens, reservedTokens, heldMicroUsd, isSpooled, beganMs, slots, model } = hold;
    const head = `${keyId} ${this.#options.gatewayId} ${estimatedTokens}`;
    const bounds = [slots.join(' ') || '-', modelText(model)];
    return [id, head, reservedTokens, heldMicroUsd, isSpooled ? '1' : '0', Math.floor(beganMs), ...bounds];
  }

  /** Registers holds with Redis. While the call is on its way, later changes of the holds are sent after it. */
  async #trackRegistration(
    holds: readonly (readonly [string, OwnHold])[],
    registration: Promise<unknown>,
  ): Promise<void> {
    const before = holds.map(([, { standing, heldMicroUsd }]) => ({ standing, heldMicroUsd }));
    for (const [, hold] of holds) if (hold.standing === 'local') hold.standing = 'registering';
    try {
      await registration;
      for (const [index, [, hold]] of holds.entries()) {
        hold.standing = 'registered';
        if (hold.heldMicroUsd === before[index]?.heldMicroUsd) hold.isRaised = false;
      }
    } catch (error) {
      for (const [index, [, hold]] of holds.entries()) hold.standing = before[index]?.standing ?? 'registered';
      throw error;
    }
  }

  #count({ organizationId, slots }: OwnHold, deltaMicroUsd: bigint): void {
    this.#countAt(organizationId, deltaMicroUsd);
    if (slots === noSlots) return;
    for (const slot of slots) this.#countAt(`${organizationId} ${slot}`, deltaMicroUsd);
  }

  #countAt(name: string, deltaMicroUsd: bigint): void {
    const held = this.#held.get(name);
    if (held === undefined) this.#held.set(name, { microUsd: deltaMicroUsd });
    else {
      held.microUsd += deltaMicroUsd;
      if (held.microUsd === 0n) this.#held.delete(name);
    }
  }

  /** Extends leases and returns the ids of the holds that Redis does not have. */
  #extendLeases(organizationId: string, keyId: string, ids: readonly string[]): Promise<Reply> {
    const { store, leaseMs } = this.#options;
    const { holds, leases } = store.organization(organizationId);
    const { slots } = store.use(organizationId, keyId);
    return store.run(renewScript, [holds, leases, slots], [String(leaseMs), ...ids]);
  }

  async #sweepHolds(organizationId: string, expired: readonly Expired[], live: ReadonlySet<string>): Promise<void> {
    const lost = expired.filter((hold) => this.#isLost(hold, live));
    if (lost.length === 0) return;
    const ids = lost.map(({ requestId }) => requestId);
    const settledIds = await this.#options.findSettled(organizationId, ids);
    let settled = 0;
    for (const { requestId, keyId, isSpooled } of lost) {
      const used = settledIds.get(requestId);
      if (used === undefined && isSpooled) await this.#keepSpooled(organizationId, keyId, requestId);
      else {
        await this.settlements.send([{ requestId, organizationId, keyId, used: used ?? nothingUsed, how: 'sweep' }]);
        settled += 1;
      }
    }
    if (settled === 0) return;
    this.#options.log.info(
      { organizationId, holds: settled },
      'wallet holds of requests of a stopped gateway were released; requests that it had charged are in the usage records',
    );
  }

  /**
   * Renews the lease of a spooled request. Its record lies on some gateway's disk and comes into the database when that
   * spool is read; until then its money is spent.
   */
  async #keepSpooled(organizationId: string, keyId: string, requestId: string): Promise<void> {
    const { store } = this.#options;
    await this.#extendLeases(organizationId, keyId, [requestId]);
    await store.redis.command('ZADD', store.index, String(Math.floor(await store.nowMs())), organizationId);
  }

  /** True if the gateway of an expired lease has ended, or if it is this gateway and has no such request. */
  #isLost({ requestId, gatewayId }: Expired, live: ReadonlySet<string>): boolean {
    if (gatewayId !== this.#options.gatewayId) return !live.has(gatewayId);
    return !this.#own.has(requestId) && !this.settlements.has(requestId);
  }
}

const noSlots: readonly string[] = [];
const noUnregisteredUse = { message: '-', requests: 0, tokens: 0, beganMs: 0 };
const text = (limit: number | null): string => (limit === null ? '-' : String(limit));
/** Encodes what Redis needs to count an unsure request that it does not know, when the request is settled. */
const howUnsure = ({ beganMs, tokensPerMinute, model }: OwnHold): How =>
  `local:${Math.floor(beganMs)}:${text(tokensPerMinute)}:${model?.slot ?? '-'}:${text(model?.tokensPerMinute ?? null)}`;

/** @param rest end of the script's reply: request, note, whether it is spooled, and so on */
function expiredOf(rest: readonly string[]): readonly Expired[] {
  const expired: Expired[] = [];
  for (let index = 0; index + 2 < rest.length; index += 3) {
    const [requestId = '', note = '', spooled] = rest.slice(index, index + 3);
    const [keyId = '', gatewayId = ''] = note.split(' ');
    expired.push({ requestId, keyId, gatewayId, isSpooled: spooled === '1' });
  }
  return expired;
}
