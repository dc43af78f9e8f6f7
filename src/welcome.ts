import type { EngineDefinition } from '#core/catalog/catalog.ts';

/** What every start says on its standard output. */
export function startText(url: string): string {
  return `Headgate listens on ${url}\n`;
}

/** What the first start says: the secret, which is shown this once, and a request that works as it stands. */
export function firstStartText(url: string, secret: string, engines: readonly EngineDefinition[]): string {
  const enabled = engines.filter(({ enabled }) => enabled);
  const model = (enabled.find(({ taskType }) => taskType === 'chat') ?? enabled[0])?.id;
  const body = JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello!' }] });
  const curl =
    model === undefined
      ? ''
      : `Try it:

  curl ${url}/v1/chat/completions \\
    -H 'Authorization: Bearer ${secret}' \\
    -H 'Content-Type: application/json' \\
    -d '${body}'

`;
  return `${startText(url)}
Your API key (scope management, 10 USD of credit); it is shown this once, so keep it:

  ${secret}

${curl}`;
}
