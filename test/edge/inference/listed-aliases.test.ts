import { describe, expect, it } from 'vitest';
import { type Body, chatBody, errorOf, standinFile, useInference } from '#test/inference/inference-gateway.ts';

const aliases = 'aliases: [claude-sonnet, Claude Opus]';
const bench = useInference(() => ({
  engines: {
    listed: standinFile('listed', { lines: [aliases, 'list_aliases: true'] }),
    unlisted: standinFile('unlisted', { lines: ['aliases: [claude-haiku]'] }),
    off: standinFile('off', { lines: ['aliases: [claude-off]', 'list_aliases: true', 'enabled: false'] }),
    embed: standinFile('embed', { taskType: 'embedding', lines: ['aliases: [claude-embed]', 'list_aliases: true'] }),
  },
}));

const get = async (path: string, key?: string): Promise<Body> =>
  (await bench.gateway.request(path, key === undefined ? {} : { key })).json();
const ids = ({ data }: Body): string[] => data.map(({ id }: Body) => id);

describe('aliases of an engine file with list_aliases', () => {
  it('are listed after their model, with its fields and their own id', async () => {
    const list = await get('/v1/models');
    expect(ids(list)).toEqual(['embed', 'claude-embed', 'listed', 'claude-sonnet', 'Claude Opus', 'unlisted']);
    const [, , model, sonnet] = list.data;
    expect(model.aliases).toEqual(['claude-sonnet', 'Claude Opus']);
    expect(sonnet).toEqual({
      ...model,
      id: 'claude-sonnet',
      name: 'claude-sonnet',
      aliases: ['listed', 'Claude Opus'],
    });
    expect(ids(await get('/v1/models?task_type=embedding'))).toEqual(['embed', 'claude-embed']);
  });

  it('are returned by themselves as the list has them, whatever the case of the name', async () => {
    const { data } = await get('/v1/models');
    for (const name of ['claude-sonnet', 'CLAUDE-SONNET']) {
      expect(await get(`/v1/models/${name}`)).toEqual(data.find(({ id }: Body) => id === 'claude-sonnet'));
    }
    expect(await get('/v1/models/The%20listed')).toMatchObject({ id: 'listed' });
    expect(await get('/v1/models/claude-haiku')).toMatchObject({ id: 'unlisted' });
  });

  it('are seen and used by the keys that may use their model, and by no others', async () => {
    const made: Body = await (await bench.post('/v1/keys', { name: 'one', models: ['unlisted'] })).json();
    expect(ids(await get('/v1/models', made.secret))).toEqual(['unlisted']);
    const hidden = await bench.gateway.request('/v1/models/claude-sonnet', { key: made.secret });
    expect(await errorOf(hidden)).toMatchObject({ status: 404, code: 'model_not_found' });
    const refused = await bench.chat({ model: 'claude-sonnet' }, { key: made.secret });
    expect(await errorOf(refused)).toMatchObject({ status: 400, code: 'model_not_found' });
    const answer = await bench.post('/v1/chat/completions', chatBody({ model: 'claude-sonnet' }));
    expect(await answer.json()).toMatchObject({ model: 'listed' });
  });

  it('can be named in the models of a key, which then lists the model with its aliases', async () => {
    const made: Body = await (await bench.post('/v1/keys', { name: 'two', models: ['claude-sonnet'] })).json();
    expect(made.models).toEqual(['listed']);
    expect(ids(await get('/v1/models', made.secret))).toEqual(['listed', 'claude-sonnet', 'Claude Opus']);
  });
});

describe('aliases that are difficult to list', () => {
  const odd = useInference(() => ({
    engines: {
      odd: standinFile('odd', {
        lines: ['aliases: [Odd, The odd, two, TWO, "a/b c", "100% x", "50%25"]', 'list_aliases: true'],
      }),
    },
  }));
  const read = async (path: string): Promise<Body> => (await odd.gateway.request(path)).json();

  it('are listed once, though the file has them in two cases or repeats the id', async () => {
    expect(ids(await read('/v1/models'))).toEqual(['odd', 'The odd', 'two', 'a/b c', '100% x', '50%25']);
    expect(await read('/v1/models/ODD')).toMatchObject({ id: 'odd' });
    expect(await read('/v1/models/TWO')).toMatchObject({ id: 'two' });
  });

  it('are each returned by their own path, also with slashes and percent signs', async () => {
    for (const record of (await read('/v1/models')).data) {
      expect(await read(`/v1/models/${encodeURIComponent(record.id)}`)).toEqual(record);
    }
    expect(await read('/v1/models/a/b%20c')).toMatchObject({ id: 'a/b c' });
  });
});
