import { expect } from 'vitest';
import { type Body, chatBody, chatPath, json } from './inference-gateway.ts';

/** A gateway and the first key, of whose first 10 USD everything is paid. */
export interface Asked {
  readonly url: string;
  readonly key: string;
}

/** Completion tokens by request id of the answers that came whole. */
export type Complete = Map<string, number>;

/** Sends one request after another, of chat and of messages, until that is enough, or the gateway gone; notes those whose answer came whole. */
export async function keepAsking({ url, key }: Asked, stream: boolean, complete: Complete, enough = () => false) {
  while (!enough()) {
    try {
      const standin = { output_tokens: 5 + Math.floor(Math.random() * 10), tpot_ms: 1 };
      const isChat = Math.random() < 0.5;
      const more = isChat && stream ? { stream_options: { include_usage: true } } : {};
      const body = JSON.stringify(chatBody({ stream, max_tokens: 50, standin, ...more }));
      const headers = { authorization: `Bearer ${key}`, ...json };
      const answer = await fetch(new URL(isChat ? chatPath : '/v1/messages', url), { method: 'POST', headers, body });
      const text = await answer.text();
      const isEnded = !stream || (isChat ? text.endsWith('data: [DONE]\n\n') : text.includes('event: message_stop\n'));
      const isComplete = answer.status === 200 && isEnded && !text.includes('"error"');
      const output = /"(?:completion|output)_tokens": ?(\d+)/.exec(text.slice(text.lastIndexOf('"usage"')))?.[1];
      if (isComplete) complete.set(answer.headers.get('x-request-id') ?? '', Number(output));
    } catch {
      return;
    }
  }
}

/** Expects all that came whole to be in the books once, and the wallet to say the same as the records. */
export async function expectBooked({ url, key }: Asked, complete: Complete): Promise<void> {
  const get = async (path: string): Promise<Body> =>
    (await fetch(new URL(path, url), { headers: { authorization: `Bearer ${key}` } })).json();
  const records: Body[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const page = await get(`/v1/usage/requests?limit=500${cursor}`);
    records.push(...page.data);
    cursor = page.has_more ? `&cursor=${encodeURIComponent(page.next_cursor)}` : null;
  }
  const byId = new Map(records.map((record) => [record.id, record]));
  expect(byId.size).toBe(records.length);
  for (const [id, outputTokens] of complete) {
    expect(byId.get(id)).toMatchObject({ outcome: 'completed', output_tokens: outputTokens });
  }
  const picoUsd = (usd: string): bigint => BigInt(Math.round(Number(usd) * 1e12));
  const spent = records.reduce((sum, { cost }) => sum + picoUsd(cost), 0n);
  const wallet = await get('/v1/wallet');
  expect(picoUsd(wallet.balance)).toBe(10_000_000_000_000n - spent);
  expect(wallet.held).toBe('0');
}
