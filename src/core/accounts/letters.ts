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
  sendLowBalance(low: LowBalance): Promise<void>;
  /** The same. */
  sendBudgetAlert(alert: BudgetLetter): Promise<void>;
}

/** Amounts are USD as they are shown. */
export interface LowBalance {
  readonly email: string;
  readonly organizationName: string;
  readonly balance: string;
  readonly lowBalance: string;
}

export interface BudgetLetter {
  readonly email: string;
  readonly organizationName: string;
  /** Whose budget it is: "project proj_…". */
  readonly scope: string;
  readonly period: string;
  /** Whether requests are refused for it. */
  readonly isHard: boolean;
  readonly amount: string;
  readonly spent: string;
  readonly percent: number;
  /** Milliseconds since the Unix epoch. */
  readonly resetsAtMs: number;
}

export interface LettersOptions {
  /** Null where no mail is sent. */
  readonly mailer: Mailer | null;
  /** `https://host`; null: links are paths. */
  readonly publicUrl: string | null;
}

const utc = (ms: number): string => `${new Date(ms).toISOString().slice(0, 16).replace('T', ' ')} UTC`;

export function createLetters({ mailer, publicUrl }: LettersOptions): Letters {
  const linkOf = (path: string, token: string): string => `${publicUrl ?? ''}${path}?token=${token}`;
  return {
    areSent: mailer !== null,
    async sendReset({ token, email, expiresAtMs }) {
      const link = linkOf('/reset-password', token);
      if (mailer === null) return link;
      const text = [
        'Somebody, probably you, asked for a new password of your Headgate account.',
        `This link sets one. It works once, until ${utc(expiresAtMs)}:`,
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
        `This link accepts it. It works once, until ${utc(expiresAtMs)}:`,
        link,
        'Whoever does not know of it need do nothing.',
      ];
      const subject = `An invitation to ${organizationName}`;
      await mailer.send({ to: email, subject, text: `${text.join('\n\n')}\n` });
      return null;
    },
    async sendBudgetAlert({ email, organizationName, scope, period, percent, resetsAtMs, ...budget }) {
      if (mailer === null) return;
      const { spent, amount, isHard } = budget;
      const text = [
        `The ${period} budget of ${scope} in the organization "${organizationName}" on Headgate has reached ${percent} percent: ${spent} USD of ${amount} USD are spent.`,
        isHard
          ? `Requests that would pass it are refused until it resets at ${utc(resetsAtMs)}.`
          : `It refuses nothing. It resets at ${utc(resetsAtMs)}.`,
        `The budgets: ${publicUrl ?? ''}/portal/budgets`,
      ];
      const subject = `A budget of ${organizationName} has reached ${percent} percent`;
      await mailer.send({ to: email, subject, text: `${text.join('\n\n')}\n` });
    },
    async sendLowBalance({ email, organizationName, balance, lowBalance }) {
      if (mailer === null) return;
      const text = [
        `The wallet of the organization "${organizationName}" on Headgate has ${balance} USD left, less than the ${lowBalance} USD that you wanted to be told of.`,
        'Requests that cost more than is left are refused. Whoever runs the gateway adds credit.',
        `The wallet: ${publicUrl ?? ''}/portal/wallet`,
      ];
      const subject = `The balance of ${organizationName} is low`;
      await mailer.send({ to: email, subject, text: `${text.join('\n\n')}\n` });
    },
  };
}
