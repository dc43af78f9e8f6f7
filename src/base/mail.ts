import type { Transporter } from 'nodemailer';
import { AppError } from './errors.ts';
import type { Log } from './log.ts';

/** A letter of plain text to one address. */
export interface Letter {
  readonly to: string;
  readonly subject: string;
  readonly text: string;
}

export interface Mailer {
  /** Hands a letter to the mail server. @throws AppError mail_unavailable */
  send(letter: Letter): Promise<void>;
}

export interface MailerOptions {
  /** `smtp://user:password@host:port`, TLS where the server has it; `smtps://` begins with TLS. */
  readonly url: string;
  readonly from: string;
  readonly log: Log;
}

/** Time limit for each step of a silent mail server. */
const patienceMs = 10_000;

export function createMailer({ url, from, log }: MailerOptions): Mailer {
  let transport: Promise<Transporter> | null = null;
  const connect = async (): Promise<Transporter> => {
    const { createTransport } = await import('nodemailer');
    return createTransport(
      {
        url,
        connectionTimeout: patienceMs,
        greetingTimeout: patienceMs,
        socketTimeout: patienceMs,
        dnsTimeout: patienceMs,
        disableFileAccess: true,
        disableUrlAccess: true,
      },
      { from },
    );
  };
  return {
    async send({ to, subject, text }) {
      try {
        // An object, so that a comma in an address does not begin a second address.
        transport ??= connect();
        await (await transport).sendMail({ to: { name: '', address: to }, subject, text });
      } catch (error) {
        log.error({ err: error }, 'an email could not be sent; check the server in HEADGATE_SMTP_URL');
        throw new AppError('mail_unavailable', { cause: error });
      }
    },
  };
}
