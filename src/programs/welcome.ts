import type { EngineDefinition } from '#core/catalog/catalog.ts';

/** Returns the text that every start prints on standard output. */
export function startText(url: string): string {
  return `Headgate listens on ${url}\n`;
}

/** Returns one line for a start without any model. @param files number of engine files, none of them enabled */
export function noEnginesText(folder: string, files: number): string {
  const why = files === 0 ? `there is no engine file in ${folder}` : `no engine file in ${folder} is enabled`;
  return `No models yet: ${why}; add one, such as one of engines/examples, then run: npx headgate engines reload\n`;
}

const chatSample = { path: '/v1/chat/completions', body: { messages: [{ role: 'user', content: 'Hello!' }] } };

/** A small request for a model of each kind. */
const samples: Readonly<Record<EngineDefinition['taskType'], { readonly path: string; readonly body: object }>> = {
  chat: chatSample,
  vision: chatSample,
  code: chatSample,
  completion: { path: '/v1/completions', body: { prompt: 'Hello' } },
  embedding: { path: '/v1/embeddings', body: { input: 'Hello!' } },
  rerank: { path: '/v1/rerank', body: { query: 'Hello!', documents: ['Good morning!', 'Goodbye!'] } },
};

/** Returns the text of the first start: the secret, shown only once, and a complete curl request. */
export function firstStartText(url: string, secret: string, engines: readonly EngineDefinition[]): string {
  const enabled = engines.filter((engine) => engine.enabled);
  const model = enabled.find(({ taskType }) => taskType === 'chat') ?? enabled[0];
  return `${startText(url)}
Your API key (scope management, 10 USD of credit); it is shown only once, so store it now:

  ${secret}

${model === undefined ? '' : curlText(url, secret, model)}`;
}

/** Returns the text with the link that signs the platform administrator in once. */
export function welcomeText(url: string, token: string): string {
  return `Sign in as administrator in a browser (the link works once, within ten minutes; "npx headgate welcome" creates another):

  ${welcomeLink(hereOf(url), token)}

`;
}

export function welcomeLink(url: string, token: string): string {
  return `${new URL('/welcome', url).href}?token=${token}`;
}

/** Replaces a wildcard address, which no client can call, by 127.0.0.1; a container is called at its published port. */
export function hereOf(url: string): string {
  const { hostname } = new URL(url);
  return isEverywhere(hostname) ? url.replace(hostname, '127.0.0.1') : url;
}

const isEverywhere = (hostname: string): boolean => hostname === '0.0.0.0' || hostname === '[::]';

function curlText(url: string, secret: string, { id, taskType }: EngineDefinition): string {
  const { path, body } = samples[taskType];
  const here = hereOf(url);
  return `Try it${here !== url ? ' on this machine, or elsewhere with the address of this machine' : ''}:

  curl ${here}${path} \\
    -H 'Authorization: Bearer ${secret}' \\
    -H 'Content-Type: application/json' \\
    -d '${JSON.stringify({ model: id, ...body })}'

`;
}
