import { randomUUID } from 'node:crypto';
import { uuidTimeMs } from '#base/id.ts';
import type { ProjectLimit, RefusedOfProject, Settlement } from '#core/admission/contract/contract.ts';
import type { AdmissionStore, HoldLeases, LastKnown, OwnHold, UnregisteredUse } from '#core/admission/redis/redis.ts';
import {
  countOfModel,
  dayStartMs,
  divideModelLimits,
  divideModelUse,
  type ModelLimits,
  type ModelUse,
  type ModelView,
  nextDayMs,
  refuseByModel,
  reserve,
  rollModel,
  rollWindow,
  unusedModel,
  viewModel,
} from '#core/limits/limits.ts';
import type { OutageAccounts } from './accounts.ts';
import { OutageParts } from './parts.ts';

/** A project's use of a model, as this gateway counts it during an outage. */
interface LocalModel {
  readonly organizationId: string;
  /** Number of gateways that divide its limits. */
  readonly gateways: number;
  /** Use within this gateway's part of the limits; windows and days are in the time of Redis' clock. */
  readonly use: ModelUse;
  /** Requests of the day, of all gateways as far as they are known. */
  dayRequests: number;
  tokensPerMinute: number | null;
  /** Requests admitted here that have ended in the running window and that Redis does not have. */
  ended: { requests: number; tokens: number };
  /** True if a request has ended that Redis does not have. */
  isEnded: boolean;
  registering: UnregisteredUse | null;
}

/** The limits of a project, with this gateway's part of them. */
export interface ModelPart {
  readonly limit: ProjectLimit;
  readonly model: LocalModel;
}

interface LocalHold {
  readonly slot: string;
  readonly windowStartMs: number;
  readonly reservedTokens: number;
}

export interface OutageModelsOptions {
  readonly store: Pick<AdmissionStore, 'guessedNowMs'>;
  readonly books: Pick<OutageAccounts, 'requests' | 'gateways'>;
  readonly leases: Pick<HoldLeases, 'holdsOf'>;
  readonly known: Pick<LastKnown, 'model' | 'isModelHeard'>;
}

/** Result if only this gateway's part of a day is used up. It ends with the outage, not with the day. */
export const onlyOfPart = 'only of this part';

/**
 * Limits of projects while Redis is unavailable. The limits, and what is left of them, are divided among the live
 * gateways, as the limits of keys are.
 */
export class OutageModels {
  readonly #options: OutageModelsOptions;
  readonly #models: OutageParts<LocalModel>;
  readonly #reading = new Map<string, Promise<LocalModel>>();
  readonly #holds: Map<string, LocalHold>;

  constructor(options: OutageModelsOptions, before: OutageModels | null) {
    this.#options = options;
    this.#models = new OutageParts(before === null ? null : before.#models, (slot) => options.known.isModelHeard(slot));
    this.#holds = before === null ? new Map<string, LocalHold>() : before.#holds;
  }

  /** Returns this gateway's part of the limits; undefined if something must be read first. */
  current(limit: ProjectLimit | null): ModelPart | null | undefined {
    if (limit === null) return null;
    const model = this.#models.get(limit.slot);
    return model === undefined || !this.#knowsDay(model, limit) ? undefined : { limit, model };
  }

  /**
   * Reads this gateway's part of the limits that are in effect after the read.
   * @throws an Error if nothing is known and the database does not answer
   */
  async read(organizationId: string, limitNow: () => ProjectLimit | null): Promise<ModelPart | null> {
    for (;;) {
      const limit = limitNow();
      const part = this.current(limit);
      if (part !== undefined) return part;
      if (limit !== null) await this.#readOnce(organizationId, limit);
    }
  }

  refuse(
    { limit, model }: ModelPart,
    estimatedTokens: number,
    hereMs: number,
  ): RefusedOfProject | typeof onlyOfPart | null {
    const { limits } = limit;
    const divided = this.#roll(model, limits);
    const refused = refuseByModel(model.use, divided, estimatedTokens, { nowMs: this.#nowMs, hereMs });
    if (refused === null) return null;
    const most = limits[refused.name] ?? 0;
    if (refused.name === 'requestsPerDay' && model.dayRequests < most) return onlyOfPart;
    return { limit, refused: { ...refused, view: { ...refused.view, limit: most } } };
  }

  /** Returns the whole limits, and what this gateway may give of them. */
  view({ limit: { limits }, model }: ModelPart, hereMs: number): ModelView {
    const divided = this.#roll(model, limits);
    return viewModel(model.use, divided, { nowMs: this.#nowMs, hereMs }, limits);
  }

  /** Counts a request that is admitted here. */
  take(requestId: string, { limit, model }: ModelPart, estimatedTokens: number): void {
    const divided = this.#roll(model, limit.limits);
    const reservedTokens = reserve(estimatedTokens, divided.tokensPerMinute);
    countOfModel(model.use, this.#nowMs);
    model.use.tokens += reservedTokens;
    model.dayRequests += 1;
    model.tokensPerMinute = limit.limits.tokensPerMinute;
    this.#holds.set(requestId, { slot: limit.slot, windowStartMs: model.use.windowStartMs, reservedTokens });
  }

  /** Counts a request that Redis had admitted before the outage. */
  admittedByRedis({ model }: Pick<OwnHold, 'model'>): void {
    const local = model === null ? undefined : this.#models.find(model.slot);
    if (local === undefined) return;
    countOfModel(local.use, this.#nowMs);
    local.dayRequests += 1;
  }

  /** True if a request counts here against any limits. */
  has(requestId: string): boolean {
    return this.#holds.has(requestId);
  }

  /** True if a request that was admitted here counts against these limits. */
  counts(requestId: string, { limit }: ModelPart): boolean {
    return this.#holds.get(requestId)?.slot === limit.slot;
  }

  /** True if the limits of a model reject a request that does not count against them yet. */
  refusesMove(requestId: string, part: ModelPart | null, estimatedTokens: number, hereMs: number): boolean {
    if (part === null || this.counts(requestId, part)) return false;
    return this.refuse(part, estimatedTokens, hereMs) !== null;
  }

  /** Counts a request against the limits of another model. @returns false if they are the same */
  move(requestId: string, part: ModelPart | null, estimatedTokens: number): boolean {
    if (part !== null && this.counts(requestId, part)) return false;
    this.giveBack(requestId);
    if (part !== null) this.take(requestId, part, estimatedTokens);
    return true;
  }

  /** Removes the counts of a request that another model serves now. */
  giveBack(requestId: string): void {
    const hold = this.#holds.get(requestId);
    const model = hold === undefined ? undefined : this.#models.find(hold.slot);
    this.#holds.delete(requestId);
    if (hold === undefined || model === undefined) return;
    const { use } = model;
    if (use.windowStartMs === hold.windowStartMs) {
      use.requests = Math.max(0, use.requests - 1);
      use.tokens = Math.max(0, use.tokens - hold.reservedTokens);
    }
    model.dayRequests = Math.max(0, model.dayRequests - 1);
    use.dayRequests = Math.max(0, use.dayRequests - 1);
  }

  /** Replaces reserved tokens with used ones. */
  correct(requestId: string, tokens: number): void {
    const hold = this.#holds.get(requestId);
    const model = hold === undefined ? undefined : this.#models.find(hold.slot);
    if (hold === undefined || model === undefined || model.tokensPerMinute === null) return;
    const beyond = tokens - hold.reservedTokens;
    const { use } = model;
    if (beyond > 0 || use.windowStartMs === hold.windowStartMs) use.tokens = Math.max(0, use.tokens + beyond);
  }

  /** @param isLocal true if the request was admitted here and Redis does not have it */
  settled(requestId: string, isLocal: boolean, used: Settlement): void {
    const hold = this.#holds.get(requestId);
    const model = hold === undefined ? undefined : this.#models.find(hold.slot);
    this.#holds.delete(requestId);
    if (hold === undefined || model === undefined || !isLocal) return;
    model.isEnded = true;
    if (hold.windowStartMs !== model.use.windowStartMs) return;
    model.ended.requests += 1;
    if (model.tokensPerMinute !== null) model.ended.tokens += used.tokens;
  }

  /** Returns the organizations with ended use that Redis does not have. */
  unregisteredOrganizations(): readonly string[] {
    const unregistered = this.#models.all().filter(([, model]) => isUnregistered(model));
    return unregistered.map(([, { organizationId }]) => organizationId);
  }

  /**
   * Returns the ended use of an organization's models that Redis does not have; the same objects until `markRegistered`.
   */
  unregistered(of: string): readonly UnregisteredUse[] {
    const unregistered = this.#models.all().filter(([, model]) => model.organizationId === of && isUnregistered(model));
    return unregistered.map(([keyId, model]) => {
      const { tokensPerMinute, ended, use } = model;
      if (model.registering !== null) return model.registering;
      model.registering = { keyId, tokensPerMinute, ...ended, beganMs: use.windowStartMs, message: randomUUID() };
      model.ended = { requests: 0, tokens: 0 };
      model.isEnded = false;
      return model.registering;
    });
  }

  markRegistered(uses: readonly UnregisteredUse[]): void {
    for (const use of uses) {
      const model = this.#models.get(use.keyId);
      if (model?.registering === use) model.registering = null;
    }
  }

  get #nowMs(): number {
    return this.#options.store.guessedNowMs;
  }

  #knowsDay({ use }: LocalModel, { limits }: ProjectLimit): boolean {
    return limits.requestsPerDay === null || use.dayMs === dayStartMs(this.#nowMs);
  }

  /** @returns this gateway's part of the limits */
  #roll(model: LocalModel, limits: ModelLimits): ModelLimits {
    const divided = divideModelLimits(limits, model.gateways);
    const { windowStartMs } = model.use;
    rollWindow(model.use, divided, this.#nowMs);
    if (model.use.windowStartMs !== windowStartMs) model.ended = { requests: 0, tokens: 0 };
    return divided;
  }

  #readOnce(organizationId: string, limit: ProjectLimit): Promise<LocalModel> {
    const running = this.#reading.get(limit.slot);
    if (running !== undefined) return running;
    const former = this.#models.takeUp(limit.slot);
    const goesOn = former !== undefined && this.#knowsDay(former, limit);
    const model = goesOn ? this.#goOn(organizationId, limit, former) : this.#make(organizationId, limit);
    const reading = model.finally(() => this.#reading.delete(limit.slot));
    this.#reading.set(limit.slot, reading);
    return reading;
  }

  /** Continues the part of an earlier outage, minus what others have requested since according to the database. */
  async #goOn(organizationId: string, limit: ProjectLimit, local: LocalModel): Promise<LocalModel> {
    const { slot, projectId, model, limits } = limit;
    const { dayRequests, use } = local;
    if (limits.requestsPerDay === null || use.dayMs === null) return local;
    const recorded = await this.#requestsOf({ organizationId, projectId, model, dayMs: use.dayMs }, slot, dayRequests);
    const beyond = Math.max(0, recorded - dayRequests);
    local.dayRequests += beyond;
    use.dayRequests += Math.ceil(beyond / local.gateways);
    return local;
  }

  async #make(organizationId: string, { slot, projectId, model, limits }: ProjectLimit): Promise<LocalModel> {
    const { known, books } = this.#options;
    const gateways = await books.gateways();
    const use = known.model(slot) ?? unusedModel();
    rollModel(use, limits, this.#nowMs, this.#nowMs);
    if (limits.requestsPerDay !== null) {
      const heard = use.dayMs === null ? null : use.dayRequests;
      const dayMs = dayStartMs(this.#nowMs);
      use.dayRequests = Math.max(
        heard ?? 0,
        await this.#requestsOf({ organizationId, projectId, model, dayMs }, slot, heard),
      );
      use.dayMs = dayMs;
    }
    const divided = divideModelUse(use, limits, gateways);
    const made = this.#models.get(slot);
    if (made !== undefined) {
      made.use.dayMs = divided.dayMs;
      made.use.dayRequests = divided.dayRequests;
      made.dayRequests = use.dayRequests;
      return made;
    }
    const nothing = { ended: { requests: 0, tokens: 0 }, isEnded: false, registering: null };
    const { tokensPerMinute } = limits;
    const { dayRequests } = use;
    const local: LocalModel = { organizationId, gateways, use: divided, dayRequests, tokensPerMinute, ...nothing };
    this.#models.set(slot, local);
    return local;
  }

  /**
   * Returns the requests of a day in the database and those running here; 0 if a count was heard and the database is
   * silent.
   */
  async #requestsOf(
    of: Parameters<OutageAccounts['requests']>[0],
    slot: string,
    heard: number | null,
  ): Promise<number> {
    const { books, leases } = this.#options;
    const held = [...leases.holdsOf(of.organizationId)].filter(([, { model }]) => model?.slot === slot);
    const ids = held
      .map(([id]) => id)
      .filter((id) => uuidTimeMs(id) >= of.dayMs && uuidTimeMs(id) < nextDayMs(of.dayMs));
    const recorded = await books.requests(of, ids, heard !== null);
    if (recorded === null) return 0;
    const counted = new Set(recorded.counted);
    return recorded.requests + ids.filter((id) => !counted.has(id)).length;
  }
}

const isUnregistered = ({ ended, isEnded, registering }: LocalModel): boolean =>
  ended.requests > 0 || isEnded || registering !== null;
