import { utcText } from '#base/utc.ts';
import type { Mailer } from '#base/mail.ts';
import type { MadeInvitation } from './invitation.ts';
import type { ResetLink } from './reset-link.ts';
import { roleWords } from './role-words.ts';

/** How links reach people: by mail where there is a mail server, else by who made them. */
export interface Letters {
  /** Whether links are sent by mail. */
  readonly areSent: boolean;
  /** @returns null where it was sent, else the link for who made it. @throws AppError mail_unavailable */
  sendReset(link: ResetLink): Promise<string | null>;
  sendInvitation(made: MadeInvitation): Promise<string | null>;
  /** Does nothing where no mail is sent. @throws AppError mail_unavailable */
  sendAlert(alert: AlertLetter): Promise<void>;
}

/** What somebody is told without asking. */
export interface AlertLetter {
  readonly email: string;
  readonly subject: string;
  readonly paragraphs: readonly string[];
  /** Where more of it is to be seen, among the gateway's own pages. */
  readonly page: { readonly text: string; readonly path: string } | null;
  /** When it happened: a letter may come late. */
  readonly atMs: number;
}

export interface LettersOptions {
  /** Null where no mail is sent. */
  readonly mailer: Mailer | null;
  /** `https://host`; null: links are paths. */
  readonly publicUrl: string | null;
}

export function createLetters({ mailer, publicUrl }: LettersOptions): Letters {
  const linkOf = (path: string, token: string): string => `${publicUrl ?? ''}${path}?token=${token}`;
  return {
    areSent: mailer !== null,
    async sendReset({ token, email, expiresAtMs }) {
      const link = linkOf('/reset-password', token);
      if (mailer === null) return link;
      const text = [
        'Somebody, probably you, asked for a new password of your Headgate account.',
        `This link sets one. It works once, until ${utcText(expiresAtMs)}:`,
        link,
        'Whoever did not ask for it need do nothing: the password stays as it is.',
      ];
      await mailer.send({ to: email, subject: 'A new password for Headgate', text: `${text.join('\n\n')}\n` });
      return null;
    },
    async sendInvitation({ token, organizationName, invitation: { email, role, expiresAtMs } }) {
      const link = linkOf('/invitation', token);
      if (mailer === null) return link;
      const text = [
        `You are invited to the organization "${organizationName}" on Headgate, with the role "${roleWords[role]}".`,
        `This link accepts it. It works once, until ${utcText(expiresAtMs)}:`,
        link,
        'Whoever does not know of it need do nothing.',
      ];
      const subject = `An invitation to ${organizationName}`;
      await mailer.send({ to: email, subject, text: `${text.join('\n\n')}\n` });
      return null;
    },
    async sendAlert({ email, subject, paragraphs, page, atMs }) {
      if (mailer === null) return;
      const link = page === null ? [] : [`${page.text}: ${publicUrl ?? ''}${page.path}`];
      const text = [...paragraphs, `This was on ${utcText(atMs)}.`, ...link];
      // A name of several lines is no further header.
      await mailer.send({ to: email, subject: subject.replaceAll(/\s+/g, ' '), text: `${text.join('\n\n')}\n` });
    },
  };
}
