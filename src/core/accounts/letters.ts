import { utcText } from '#base/utc.ts';
import type { Mailer } from '#base/mail.ts';
import type { MadeInvitation } from './invitation.ts';
import type { ResetLink } from './reset-link.ts';
import { roleWords } from './role-words.ts';

/** Delivers links: by email if there is a mail server, otherwise through the person who created them. */
export interface Letters {
  /** True if links are sent by email. */
  readonly areSent: boolean;
  /** @returns null if the email was sent, otherwise the link for its creator. @throws AppError mail_unavailable */
  sendReset(link: ResetLink): Promise<string | null>;
  sendInvitation(made: MadeInvitation): Promise<string | null>;
  /** Sends an email about an alert; does nothing without a mail server. @throws AppError mail_unavailable */
  sendAlert(alert: AlertLetter): Promise<void>;
}

/** An email about an alert. */
export interface AlertLetter {
  readonly email: string;
  readonly subject: string;
  readonly paragraphs: readonly string[];
  /** Page of the gateway with details. */
  readonly page: { readonly text: string; readonly path: string } | null;
  /** Time of the event: an email may arrive late. */
  readonly atMs: number;
}

export interface LettersOptions {
  /** Null if no email is sent. */
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
        'A password reset was requested for your Headgate account.',
        `Set a new password with this link. It works once, until ${utcText(expiresAtMs)}:`,
        link,
        'If you did not request this, ignore this email: your password stays the same.',
      ];
      await mailer.send({ to: email, subject: 'Reset your Headgate password', text: `${text.join('\n\n')}\n` });
      return null;
    },
    async sendInvitation({ token, organizationName, invitation: { email, role, expiresAtMs } }) {
      const link = linkOf('/invitation', token);
      if (mailer === null) return link;
      const text = [
        `You are invited to join the organization "${organizationName}" on Headgate with the role "${roleWords[role]}".`,
        `Accept the invitation with this link. It works once, until ${utcText(expiresAtMs)}:`,
        link,
        'If you do not expect this invitation, ignore this email.',
      ];
      const subject = `Invitation to ${organizationName} on Headgate`;
      await mailer.send({ to: email, subject, text: `${text.join('\n\n')}\n` });
      return null;
    },
    async sendAlert({ email, subject, paragraphs, page, atMs }) {
      if (mailer === null) return;
      const link = page === null ? [] : [`${page.text}: ${publicUrl ?? ''}${page.path}`];
      const text = [...paragraphs, `Time of the event: ${utcText(atMs)}.`, ...link];
      // Line breaks in a name must not start another header.
      await mailer.send({ to: email, subject: subject.replaceAll(/\s+/g, ' '), text: `${text.join('\n\n')}\n` });
    },
  };
}
