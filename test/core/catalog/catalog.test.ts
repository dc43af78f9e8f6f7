import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Clock, systemClock } from '#base/clock.ts';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import {
  type Catalog,
  createCatalog,
  type EngineDefinition,
  type EnginePricing,
  type LoraAdapter,
} from '#core/catalog/catalog.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';

let database: TestDatabase;
let db: Db;

beforeAll(async () => {
  database = await createTestDatabase();
  db = connectDb(database.url);
});
afterAll(async () => {
  await db.close();
  await database.drop();
});

const pricing: EnginePricing = {
  inputPerMTokMicroUsd: 100_000n,
  cachedInputPerMTokMicroUsd: 50_000n,
  outputPerMTokMicroUsd: 400_000n,
};

function engine(id: string, over: Partial<EngineDefinition> = {}): EngineDefinition {
  return {
    file: `engines/${id}.yaml`,
    id,
    name: `The ${id}`,
    aliases: [],
    listsAliases: false,
    huggingFaceId: `Acme/${id}`,
    taskType: 'chat',
    contextLength: 4096,
    enabled: true,
    ownedBy: 'Acme',
    pricing,
    flexPricing: null,
    fallbacks: [],
    concurrencyMax: null,
    requestChanges: { defaults: {}, overrides: {} },
    queuedRequestsMax: null,
    queuedTokensMax: null,
    wedgedMs: 60_000,
    stalledMs: 600_000,
    kind: 'openai',
    allow: [],
    unservedTools: 'reject',
    mediaDomains: [],
    nMax: null,
    mediaMax: 32,
    structuredOutputs: { choicesMax: 1000, depthMax: 16, propertiesMax: 500, bytesMax: 65_536, repetitionsMax: 250 },
    shareCache: false,
    hardwareProfile: null,
    organizationId: null,
    lora: [],
    lorasMax: null,
    loraRankMax: null,
    driver: {
      type: 'external',
      deployments: [{ name: null, url: 'http://127.0.0.1:1', upstreamModel: null, apiKeyEnv: null, weight: 1 }],
      findsKind: true,
    },
    ...over,
  };
}

function clockAt(iso: string): Clock {
  return { ...systemClock, now: () => Date.parse(iso) };
}

async function synced(engines: EngineDefinition[], clock: Clock = systemClock): Promise<Catalog> {
  const catalog = createCatalog({ db, clock, engines });
  await catalog.sync();
  return catalog;
}

async function versions(modelId: string): Promise<{ input: string; at: Date }[]> {
  const rows = await db.sql<{ input: string; at: string }[]>`
    select input_per_mtok_micro_usd as input, effective_from as at from price_versions
    where model_id = ${modelId} order by effective_from`;
  return rows.map(({ input, at }) => ({ input, at: new Date(at) }));
}

describe('a model name', () => {
  const catalog = () =>
    createCatalog({
      db,
      clock: systemClock,
      engines: [engine('zeta'), engine('alpha', { enabled: false }), engine('emb', { taskType: 'embedding' })],
    });

  it('finds nothing when no engine has it', () => {
    expect(catalog().find('nope')).toBeUndefined();
    expect(catalog().find('')).toBeUndefined();
  });

  it('finds its model by id, display name and repository, case-insensitively', () => {
    for (const name of ['zeta', 'ZETA', 'the zeta', 'acme/Zeta']) expect(catalog().find(name)?.id, name).toBe('zeta');
  });

  it('finds a disabled engine, which is in list() but not in byTask()', () => {
    expect(catalog().find('alpha')?.enabled).toBe(false);
    expect(
      catalog()
        .list()
        .map(({ id }) => id),
    ).toEqual(['alpha', 'emb', 'zeta']);
    expect(
      catalog()
        .byTask('chat')
        .map(({ id }) => id),
    ).toEqual(['zeta']);
    expect(catalog().byTask('code')).toEqual([]);
  });
});

describe('a LoRA adapter', () => {
  const adapter: LoraAdapter = {
    id: 'tuned',
    name: 'Tuned',
    aliases: [],
    huggingFaceId: null,
    ownedBy: 'Acme',
    path: '/models/tuned',
    upstreamModel: null,
    pricing: { ...pricing, inputPerMTokMicroUsd: 1n },
    flexPricing: null,
    fallbacks: [],
  };

  it('is a model with its own price on the engine of its base, and keeps its base after its file is deleted', async () => {
    const catalog = await synced([engine('base', { lora: [adapter] })]);
    expect(catalog.list().map(({ id }) => id)).toEqual(['base', 'tuned']);
    expect(catalog.find('TUNED')).toMatchObject({ adapter, engine: { id: 'base' }, taskType: 'chat', enabled: true });
    expect(catalog.price('tuned')).toMatchObject({ modelId: 'tuned', inputPerMTokMicroUsd: 1n });
    const later = await synced([engine('base')]);
    expect(later.find('tuned')).toBeUndefined();
    expect(later.price('tuned')).toBeUndefined();
    expect(later.bases().at('tuned', Date.now())).toBe('base');
  });

  it('has dated bases, and is its own base from when it is a model of its own', async () => {
    const one: LoraAdapter = { ...adapter, id: 'moving', name: 'Moving' };
    const at = (hour: string): Clock => clockAt(`2030-01-01T${hour}:00Z`);
    const ms = (hour: string): number => at(hour).now();
    await synced([engine('a', { lora: [one] }), engine('b')], at('10:10'));
    await synced([engine('a', { lora: [one] }), engine('b')], at('10:30'));
    await synced([engine('a'), engine('b')], at('11:10'));
    await synced([engine('a'), engine('b', { lora: [one] })], at('12:10'));
    const bases = (await synced([engine('moving')], at('14:10'))).bases();
    const times = ['09:00', '10:20', '11:30', '12:09', '12:10', '14:00', '14:20'];
    expect(times.map((time) => bases.at('moving', ms(time)))).toEqual(['a', 'a', 'a', 'a', 'b', 'b', 'moving']);
    const hours = ['09', '11', '12', '13', '14', '15'].map((hour) => {
      const fromMs = ms(`${hour}:00`);
      return bases.within('moving', { fromMs, toMs: fromMs + 3_600_000 });
    });
    expect(hours).toEqual([['a'], ['a'], ['a', 'b'], ['b'], ['b', 'moving'], ['moving']]);
    expect(bases.moves({ fromMs: ms('10:00'), toMs: ms('14:00') })).toEqual([ms('12:10')]);
    expect(bases.at('b', ms('12:30'))).toBe('b');
  });

  it('has no base for the time when it was a model of its own', async () => {
    await synced([engine('grown')], clockAt('2030-01-01T10:00:00Z'));
    const one: LoraAdapter = { ...adapter, id: 'grown', name: 'Grown' };
    const bases = (await synced([engine('base', { lora: [one] })], clockAt('2030-01-01T12:00:00Z'))).bases();
    const times = ['09:00', '11:00', '13:00'].map((time) => Date.parse(`2030-01-01T${time}:00Z`));
    expect(times.map((time) => bases.at('grown', time))).toEqual(['grown', 'grown', 'base']);
  });
});

describe('a price', () => {
  it('is undefined for an engine without pricing, also when it had a price before', async () => {
    await synced([engine('lost')]);
    const catalog = await synced([engine('lost', { pricing: null })]);
    expect(catalog.price('lost')).toBeUndefined();
    expect(catalog.price('unknown')).toBeUndefined();
    expect(await versions('lost')).toHaveLength(1);
  });

  it('gets a new version only when it differs, and the old version stays unchanged', async () => {
    const first = await synced([engine('dear')], clockAt('2026-01-01T00:00:00Z'));
    const same = await synced([engine('dear')], clockAt('2026-02-01T00:00:00Z'));
    expect(same.price('dear')).toEqual(first.price('dear'));
    const dearer = { ...pricing, inputPerMTokMicroUsd: 123_456_789n };
    const changed = await synced([engine('dear', { pricing: dearer })], clockAt('2026-03-01T00:00:00Z'));
    expect(changed.price('dear')).toMatchObject({
      modelId: 'dear',
      ...dearer,
      currency: 'USD',
      effectiveFrom: new Date('2026-03-01T00:00:00Z'),
    });
    expect(await versions('dear')).toEqual([
      { input: '100000', at: new Date('2026-01-01T00:00:00Z') },
      { input: '123456789', at: new Date('2026-03-01T00:00:00Z') },
    ]);
  });

  it('has separate versions for the tier flex, and none without flex pricing', async () => {
    const half = {
      inputPerMTokMicroUsd: 50_000n,
      cachedInputPerMTokMicroUsd: 25_000n,
      outputPerMTokMicroUsd: 200_000n,
    };
    const plain = await synced([engine('tiered')]);
    expect(plain.price('tiered', 'flex')).toBeUndefined();
    const both = await synced([engine('tiered', { flexPricing: half })]);
    expect(both.price('tiered')).toEqual(plain.price('tiered'));
    expect(both.price('tiered', 'flex')).toMatchObject({ ...half, modelId: 'tiered', tier: 'flex' });
    const again = await synced([engine('tiered', { flexPricing: half })]);
    expect(again.price('tiered', 'flex')).toEqual(both.price('tiered', 'flex'));
    const cheaper = await synced([engine('tiered', { flexPricing: { ...half, outputPerMTokMicroUsd: 1n } })]);
    expect(cheaper.price('tiered', 'flex')?.id).not.toBe(both.price('tiered', 'flex')?.id);
    expect(cheaper.price('tiered')).toEqual(plain.price('tiered'));
    const without = await synced([engine('tiered')]);
    expect(without.price('tiered', 'flex')).toBeUndefined();
    expect(await versions('tiered')).toHaveLength(3);
  });

  it('takes effect after the previous version even when the clock stepped back', async () => {
    await synced([engine('back')], clockAt('2026-05-01T00:00:00Z'));
    const changed = await synced(
      [engine('back', { pricing: { ...pricing, outputPerMTokMicroUsd: 1n } })],
      clockAt('2026-04-01T00:00:00Z'),
    );
    expect(changed.price('back')?.effectiveFrom.getTime()).toBe(Date.parse('2026-05-01T00:00:00Z') + 1);
    const again = await synced([engine('back', { pricing: { ...pricing, outputPerMTokMicroUsd: 1n } })]);
    expect(again.price('back')).toEqual(changed.price('back'));
  });

  it('is written once when several gateways start at the same time', async () => {
    const catalogs = await Promise.all(Array.from({ length: 8 }, () => synced([engine('busy'), engine('busier')])));
    expect(new Set(catalogs.map((catalog) => catalog.price('busy')?.id)).size).toBe(1);
    expect(await versions('busy')).toHaveLength(1);
  });
});

describe('a model', () => {
  it('keeps the time when it was first seen', async () => {
    await synced([engine('old')], clockAt('2026-01-01T00:00:00.900Z'));
    const later = await synced([engine('old'), engine('new')], clockAt('2026-06-01T00:00:00Z'));
    expect(later.find('old')?.createdAt).toBe(Date.parse('2026-01-01T00:00:00Z') / 1000);
    expect(later.find('new')?.createdAt).toBe(Date.parse('2026-06-01T00:00:00Z') / 1000);
  });

  it('is optional: an empty folder gives an empty catalog', async () => {
    const catalog = await synced([]);
    expect(catalog.list()).toEqual([]);
  });
});

describe('reloaded engine files', () => {
  it('change nothing before they are applied', async () => {
    const catalog = await synced([engine('stays'), engine('goes')]);
    const before = catalog.price('stays');
    const free = { ...pricing, inputPerMTokMicroUsd: 1n };
    await catalog.prepare([engine('stays', { pricing: free }), engine('comes')]);
    expect(catalog.list().map(({ id }) => id)).toEqual(['goes', 'stays']);
    expect(catalog.find('comes')).toBeUndefined();
    expect(catalog.price('stays')).toEqual(before);
  });

  it('replace the catalog at once, with prices and creation times', async () => {
    const catalog = await synced([engine('kept'), engine('left')], clockAt('2026-01-01T00:00:00Z'));
    const free = { ...pricing, inputPerMTokMicroUsd: 1n };
    const apply = await catalog.prepare([engine('kept', { pricing: free }), engine('fresh', { enabled: false })]);
    apply();
    expect(await catalog.settle()).toBe(true);
    expect(catalog.list().map(({ id, enabled }) => [id, enabled])).toEqual([
      ['fresh', false],
      ['kept', true],
    ]);
    expect(catalog.find('left')).toBeUndefined();
    expect(catalog.price('left')).toBeUndefined();
    expect(catalog.price('kept')).toMatchObject(free);
    expect(catalog.find('the kept')?.createdAt).toBe(Date.parse('2026-01-01T00:00:00Z') / 1000);
    expect(catalog.byTask('chat').map(({ id }) => id)).toEqual(['kept']);
  });

  it('are rejected when the database cannot be written, and the catalog stays unchanged', async () => {
    const catalog = await synced([engine('firm')]);
    await db.sql`alter table models rename to models_away`;
    try {
      await expect(catalog.prepare([engine('soft')])).rejects.toThrow(/models/);
    } finally {
      await db.sql`alter table models_away rename to models`;
    }
    expect(catalog.find('firm')?.id).toBe('firm');
    expect(catalog.find('soft')).toBeUndefined();
  });
});
