import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { SMTPServer } from 'smtp-server';

/** A mail server that delivers to a test. */
export interface MailServer {
  /** For HEADGATE_SMTP_URL. */
  readonly url: string;
  /** All letters that came, as they came. */
  readonly letters: readonly ArrivedLetter[];
  /** The next one to an address; waits for it. */
  next(to: string): Promise<ArrivedLetter>;
  stop(): Promise<void>;
}

export interface ArrivedLetter {
  readonly to: readonly string[];
  readonly from: string;
  readonly text: string;
}

/** Lines of a quoted-printable body as they were written (RFC 2045, section 6.7). */
const unquoted = (text: string): string =>
  text
    .replaceAll(/=\r?\n/g, '')
    .replaceAll(/=([0-9A-F]{2})/g, (_, hex: string) => String.fromCharCode(Number(`0x${hex}`)));

/** @param passwords of the user headgate, which may change; null asks for no login */
export async function startMailServer(passwords: ReadonlySet<string> | null = null): Promise<MailServer> {
  const letters: ArrivedLetter[] = [];
  const taken = new Set<ArrivedLetter>();
  let wake = Promise.withResolvers<void>();
  const server = new SMTPServer({
    authOptional: passwords === null,
    disabledCommands: ['STARTTLS'],
    allowInsecureAuth: true,
    onAuth({ username, password }, _session, done) {
      const isKnown = username === 'headgate' && passwords?.has(password ?? '') === true;
      done(isKnown ? null : new Error('wrong password'), { user: username });
    },
    onData(stream, session, done) {
      const parts: Buffer[] = [];
      stream.on('data', (part: Buffer) => parts.push(part));
      stream.on('end', () => {
        const { mailFrom, rcptTo } = session.envelope;
        const text = unquoted(Buffer.concat(parts).toString('utf8'));
        letters.push({
          to: rcptTo.map(({ address }) => address),
          from: mailFrom === false ? '' : mailFrom.address,
          text,
        });
        wake.resolve();
        wake = Promise.withResolvers();
        done();
      });
    },
  });
  const listening = once(server.server, 'listening');
  server.listen(0, '127.0.0.1');
  await listening;
  const { port } = server.server.address() as AddressInfo;
  return {
    url: `smtp://127.0.0.1:${port}`,
    letters,
    async next(to) {
      for (;;) {
        const woken = wake.promise;
        const found = letters.find((letter) => letter.to.includes(to) && !taken.has(letter));
        if (found !== undefined) {
          taken.add(found);
          return found;
        }
        await woken;
      }
    },
    stop: () =>
      new Promise((resolve) => {
        server.close(resolve);
      }),
  };
}

/** The path with its query of the link in a letter. */
export function linkIn({ text }: ArrivedLetter, publicUrl: string): string {
  const at = text.indexOf(`${publicUrl}/`);
  if (at === -1) throw new Error(`there is no link to ${publicUrl} in: ${text}`);
  return /^\S+/.exec(text.slice(at + publicUrl.length))?.[0] ?? '';
}
