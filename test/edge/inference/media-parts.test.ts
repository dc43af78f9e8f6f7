import { describe, expect, it } from 'vitest';
import { type Body, chatPath, errorOf, standinFile, useInference } from '#test/inference/inference-gateway.ts';

/** Fields of messages' parts beside their media, and the places where media may stand. */

const bench = useInference(() => ({
  engines: {
    chat: standinFile('chat'),
    embed: standinFile('embed', { taskType: 'embedding' }),
    rerank: standinFile('rerank', { taskType: 'rerank', flags: ['--runner', 'pooling', '--convert', 'classify'] }),
    open: standinFile('open', { lines: ['allow: [uuid, media_embeds, prompt_embeds]', 'max_media: 2'] }),
  },
}));

const refused = { status: 400, code: 'unsupported_parameter', type: 'invalid_request_error' };
const dataUrl = 'data:image/png;base64,AAAA';
const image = (more: object = {}): object => ({ type: 'image_url', image_url: { url: dataUrl }, ...more });
const chat = async (parts: readonly unknown[], model = 'chat'): Promise<Body> =>
  errorOf(await bench.chat({ model, messages: [{ role: 'user', content: [{ type: 'text', text: 'x' }, ...parts] }] }));
/** Answer of the stand-in, which has no eyes, to media that reach it. */
const reached = { status: 400, message: 'This model reads text only.' };

describe('the uuid of a media part', () => {
  it.each([
    ['beside an image', image({ uuid: 'a' })],
    ['instead of an image', { type: 'image_url', image_url: null, uuid: 'a' }],
    ['beside a plain address', { image_url: dataUrl, uuid: 'a' }],
    ['as a number', image({ uuid: 5 })],
    ['of a sound', { type: 'input_audio', input_audio: { data: 'AAAA', format: 'wav' }, uuid: 'a' }],
    ['of a film', { type: 'video_url', video_url: { url: 'data:video/mp4;base64,AAAA' }, uuid: 'a' }],
    ['of embeddings', { type: 'image_embeds', image_embeds: null, uuid: 'a' }],
    ['instead of an image that has no type', { image_url: null, uuid: 'a' }],
    ['instead of embeddings that have no type', { image_embeds: null, uuid: 'a' }],
    ['instead of an image in what calls itself a text', { type: 'text', text: 'x', image_url: null, uuid: 'a' }],
    ['in a text', { type: 'text', text: 'x', uuid: 'a' }],
  ])('returns 400: %s', async (_, part) => {
    const error = await chat([part]);
    expect(error).toMatchObject({ ...refused, param: 'messages' });
    expect(error.message).toContain('uuid');
  });

  it('returns 400 also when the name is escaped, in any message', async () => {
    const text = `{"model":"chat","messages":[{"role":"tool","content":[{"type":"image_url","image_url":null,"uu\\u0069d":"a"}]}]}`;
    const error = await errorOf(await bench.post(chatPath, text));
    expect(error).toMatchObject({ ...refused, param: 'messages' });
  });

  it('is accepted as null, and when the engine file allows it', async () => {
    expect(await chat([image({ uuid: null })])).toMatchObject(reached);
    expect(await chat([image({ uuid: 'a' })], 'open')).toMatchObject(reached);
  });

  it('is not seen in the words of a text', async () => {
    const messages = [{ role: 'user', content: 'the "image_url" of "uuid": "5"' }];
    expect((await bench.chat({ messages })).status).toBe(200);
  });
});

describe('tensors in parts', () => {
  it.each([
    ['image_embeds', { type: 'image_embeds', image_embeds: 'AAAA' }],
    ['audio_embeds', { type: 'audio_embeds', audio_embeds: { a: 'AAAA' } }],
    ['video_embeds', { video_embeds: 'AAAA' }],
    ['prompt_embeds', { type: 'prompt_embeds', data: 'AAAA' }],
  ])('return 400 for %s unless the engine file allows them', async (_, part) => {
    const error = await chat([part]);
    expect(error).toMatchObject({ ...refused, param: 'messages' });
    expect(error.message).toMatch(/embed/);
    expect((await chat([part], 'open')).message).not.toMatch(/embed/);
  });

  it('return 400 for image_pil on every model', async () => {
    for (const model of ['chat', 'open']) {
      const part = { type: 'image_pil', image_pil: '/etc/passwd' };
      const error = await chat([part], model);
      expect(error).toMatchObject({ ...refused, param: 'messages' });
      expect(error.message).toContain('image_pil');
    }
  });
});

describe('the number of media in a request', () => {
  it('is at most 32, or the limit of the engine file', async () => {
    const images = (count: number): object[] => Array.from({ length: count }, () => image());
    const error = await chat(images(33));
    expect(error).toMatchObject({ ...refused, param: 'messages' });
    expect(error.message).toContain('32');
    expect(await chat(images(32))).toMatchObject(reached);
    expect((await chat(images(3), 'open')).message).toContain('at most 2');
    expect(await chat(images(2), 'open')).toMatchObject(reached);
  });
});

describe('media in nested conversations', () => {
  const remote = { type: 'image_url', image_url: { url: 'http://169.254.169.254/latest' } };
  const message = (part: object): object => ({ role: 'user', content: [part] });

  it.each([
    ['messages', { messages: [[message(remote)]] }],
    ['messages', { messages: [[[message(remote)]]] }],
    ['input', { input: [[message(remote)]] }],
    ['input', { input: [message(remote)] }],
  ])('are checked in nested lists of %s', async (param, fields) => {
    const answer = await bench.post('/v1/embeddings', { model: 'embed', ...fields });
    const error = await errorOf(answer);
    expect(error).toMatchObject({ ...refused, param });
    expect(error.message).toContain('Media cannot be fetched');
  });

  it.each([['documents'], ['query']])('are checked in the content of %s', async (param) => {
    const body = { model: 'rerank', query: 'q', documents: ['d'], [param]: { content: [[remote]] } };
    const error = await errorOf(await bench.post('/v1/rerank', body));
    expect(error).toMatchObject({ ...refused, param });
    expect(error.message).toContain('Media cannot be fetched');
  });
});
