import { beforeAll } from 'vitest';
import { type Answer, type AskOptions, type TestApi, type TestApiOptions, useApi } from '#test/api/test-api.ts';

/** The API with keys of those who use stacks. */
export interface StacksBench {
  readonly api: () => TestApi;
  readonly ask: (path: string, options?: AskOptions) => Promise<Answer>;
  /** Management keys of users of two organizations, an inference key of the first and one of the platform admin. */
  readonly keys: { mine: string; theirs: string; inference: string; adminInference: string };
  /** By the platform admin where no key is given. `fileName` is that of the zip, all else fields of the form. */
  readonly upload: (zip: Buffer, fields?: Readonly<Record<string, string>>, key?: string) => Promise<Answer>;
  readonly send: (form: FormData, key?: string) => Promise<Answer>;
}

/** To be called once in a test file. */
export function useStacks(options: TestApiOptions = {}): StacksBench {
  const api = useApi(options);
  const ask = (path: string, asked?: AskOptions): Promise<Answer> => api().ask(path, asked);
  const keys = { mine: '', theirs: '', inference: '', adminInference: '' };
  beforeAll(async () => {
    const app = { name: 'app', scope: 'inference' };
    keys.mine = (await api().organization('Mine')).key;
    keys.theirs = (await api().organization('Theirs')).key;
    keys.inference = (await ask('/v1/keys', { key: keys.mine, body: app })).body.secret;
    keys.adminInference = (await ask('/v1/keys', { body: app })).body.secret;
  });
  const send: StacksBench['send'] = async (form, key) => {
    const request = new Request('http://x', { method: 'POST', body: form });
    const body = new Uint8Array(await request.arrayBuffer());
    const headers = { 'content-type': request.headers.get('content-type') ?? '' };
    return ask('/v1/stacks', { method: 'POST', body, headers, ...(key !== undefined && { key }) });
  };
  const upload: StacksBench['upload'] = (zip, { fileName = 'stack.zip', ...fields } = {}, key) => {
    const form = new FormData();
    form.append('file', new File([new Uint8Array(zip)], fileName));
    for (const [name, value] of Object.entries(fields)) form.append(name, value);
    return send(form, key);
  };
  return { api, ask, keys, upload, send };
}

/** Status, code and details of a refusal. */
export const details = ({ status, body }: Answer) => [status, body.error?.code, body.error?.details];
/** Status and code. */
export const refusal = ({ status, body }: Answer) => [status, body.error?.code];
