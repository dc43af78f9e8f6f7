import {
  eventually,
  type Body,
  type InferenceBench,
  standinFile,
  type EngineFileOptions,
} from './inference-gateway.ts';

/** Parts that tests of batches share: engines with a price for them, files, and the wait for their end. */

export const flexPricing =
  'pricing: { input_per_million: 0.10, cached_input_per_million: 0.05, output_per_million: 0.40, flex_multiplier: 0.5 }';

export const flexFile = (id: string, { lines = [], ...options }: EngineFileOptions = {}): string =>
  standinFile(id, { ...options, priced: false, lines: [flexPricing, ...lines] });

export interface LineOptions {
  readonly customId?: string;
  readonly url?: string;
  readonly method?: string;
  readonly body?: object;
}

/** One line of a batch, by default a chat request. */
export function line(
  n: number,
  { customId = `line-${n}`, url = '/v1/chat/completions', method = 'POST', body = {} }: LineOptions = {},
): string {
  const chat = { model: 'chat', messages: [{ role: 'user', content: `Question ${n}` }], max_tokens: 4 };
  return JSON.stringify({ custom_id: customId, method, url, body: { ...chat, ...body } });
}

export const linesOf = (count: number, options: LineOptions = {}): string =>
  Array.from({ length: count }, (_, n) => line(n, options)).join('\n');

type Gateway = InferenceBench['gateway'];

export async function uploadFile(
  gateway: Pick<Gateway, 'url' | 'key'>,
  text: string | Uint8Array,
  key = gateway.key,
): Promise<Body> {
  const form = new FormData();
  form.set('purpose', 'batch');
  form.set('file', new File([typeof text === 'string' ? text : new Uint8Array(text)], 'in.jsonl'));
  const headers = { authorization: `Bearer ${key}` };
  const answer = await fetch(new URL('/v1/files', gateway.url), { method: 'POST', headers, body: form });
  return answer.json();
}

export interface BatchOptions {
  readonly key?: string;
  readonly endpoint?: string;
  readonly fields?: object;
}

/** Uploads lines and makes a batch of them. */
export async function startBatch(
  gateway: Gateway,
  text: string | Uint8Array,
  { key = gateway.key, endpoint = '/v1/chat/completions', fields = {} }: BatchOptions = {},
): Promise<Body> {
  const file = await uploadFile(gateway, text, key);
  const body = { input_file_id: file.id, endpoint, completion_window: '24h', ...fields };
  const answer = await gateway.request('/v1/batches', { body, key });
  return answer.json();
}

export const readBatch = async (gateway: Gateway, id: string, key = gateway.key): Promise<Body> =>
  (await gateway.request(`/v1/batches/${id}`, { key })).json();

const final = ['completed', 'failed', 'expired', 'cancelled'];

export const batchEnd = (gateway: Gateway, id: string, key?: string): Promise<Body> =>
  eventually(async () => {
    const batch = await readBatch(gateway, id, key);
    return final.includes(batch.status) ? batch : null;
  });

export const batchWhen = (gateway: Gateway, id: string, is: (batch: Body) => boolean, key?: string): Promise<Body> =>
  eventually(async () => {
    const batch = await readBatch(gateway, id, key);
    return is(batch) ? batch : null;
  });

/** The lines of an output; none where there is no file. */
export async function outputOf(gateway: Gateway, fileId: string | null, key = gateway.key): Promise<readonly Body[]> {
  if (fileId === null) return [];
  const text = await (await gateway.request(`/v1/files/${fileId}/content`, { key })).text();
  return text
    .split('\n')
    .filter((one) => one !== '')
    .map((one) => JSON.parse(one));
}
