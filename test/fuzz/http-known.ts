import type { Connection } from './http-requests.ts';

/** Connections that were answered wrongly once. */

const lines = (...head: readonly string[]): string => `${['host: headgate', ...head].join('\r\n')}\r\n\r\n`;
const last = `GET /healthz HTTP/1.1\r\n${lines('connection: close')}`;

const chat = '{"model":"chat","messages":[{"role":"user","content":"Hello"}],"max_tokens":2}';

export const knownConnections: readonly (readonly Connection[])[] = [
  // The 100 stood in the midst of the answer that it belonged to.
  [
    {
      parts: [
        `POST /v1/chat/completions HTTP/1.1\r\n${lines(
          'authorization: Bearer sk-INFERENCE',
          'content-type: application/json',
          `content-length: ${chat.length}`,
        )}${chat}`,
        `OPTIONS /v1/projects HTTP/1.1\r\n${lines('content-length: 2', 'expect: 100-continue')}{}${last}`,
      ],
      after: 'wait',
    },
  ],
];
