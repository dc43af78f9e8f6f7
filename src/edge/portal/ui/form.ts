import { createHash } from 'node:crypto';
import { AppError } from '#base/errors.ts';
import { isFormToken } from '#core/sessions/sessions.ts';
import { type BodyReader, createMultipartBody, type HttpContext, wrongBody } from '#edge/http/http.ts';

/** Reads a form completely, up to 64 KiB. */
export const formBody: BodyReader = {
  mediaType: 'application/x-www-form-urlencoded',
  bodyBytesMax: 65_536,
  expected: 'a form',
  read(bytes) {
    try {
      return { contentType: 'text/plain', body: new TextDecoder('utf-8', { fatal: true }).decode(bytes) };
    } catch (error) {
      if (error instanceof TypeError) throw wrongBody('is not UTF-8');
      throw error;
    }
  },
};

/** Fields of a form. If several fields have the same name, the first applies. */
export interface Form {
  readonly text: (name: string) => string;
  readonly has: (name: string) => boolean;
}

/** Reads a form with a file, such as the zip of a stack. */
export const uploadBody: BodyReader = createMultipartBody({
  bodyBytesMax: 10 * 1024 * 1024 + 131_072,
  partsMax: 16,
  expected: 'a form with a file',
});

export interface UploadForm extends Form {
  /** Null if no file was chosen. */
  readonly file: (name: string) => File | null;
}

/**
 * Reads a form with a file, behind the middleware that reads `uploadBody`. @throws AppError if the body is not a form
 */
export async function readUpload({ req }: HttpContext): Promise<UploadForm> {
  const fields = await req.formData().catch(() => {
    throw wrongBody('is not a form');
  });
  return {
    text(name) {
      const value = fields.get(name);
      return typeof value === 'string' ? value : '';
    },
    has: (name) => fields.has(name),
    file(name) {
      const value = fields.get(name);
      // Browsers send an empty, unnamed file if none was chosen.
      return value instanceof File && (value.name !== '' || value.size > 0) ? value : null;
    },
  };
}

/** Reads a form, behind the middleware that reads `formBody`. */
export async function readForm({ req }: HttpContext): Promise<Form> {
  const fields = new URLSearchParams(await req.text());
  return { text: (name) => fields.get(name) ?? '', has: (name) => fields.has(name) };
}

/** @throws AppError insufficient_scope if the form was made for another session */
export function requireFormToken(form: Form, token: string): void {
  if (isFormToken(token, form.text('form_token'))) return;
  throw new AppError('insufficient_scope', {
    message:
      'This form belongs to another session, so nothing was changed. Open the page again and send the form from there.',
  });
}

/**
 * Converts the text of a whole-number field. Empty is null (unlimited). Text that is no number stays text, and the API
 * rejects it with the field's name. Group separators are accepted between groups of three digits. A point is not one of
 * them, and a decimal that ends in 0 stays text: some people write "1.000" for a thousand, which must not become a
 * limit of 1.
 */
export function numberOf(text: string): number | string | null {
  const trimmed = text.trim();
  if (trimmed === '') return null;
  const isWhole = /^-?(?:\d{1,17}|\d{1,3}(?:[\s,_']\d{3}){1,5})$/.test(trimmed);
  if (isWhole) return Number(trimmed.replaceAll(/[\s,_']/g, ''));
  return /^-?\d{1,17}\.\d{0,5}[1-9]$/.test(trimmed) ? Number(trimmed) : text;
}

/**
 * Converts the text of a decimal field to a plain decimal: group separators are accepted as in whole numbers. Other text
 * stays as it is, and the API rejects it with the field's name.
 */
export function decimalOf(text: string): string {
  const trimmed = text.trim();
  const isDecimal = /^-?\d{1,3}(?:[\s,_']\d{3}){1,5}(?:\.\d{1,12})?$/.test(trimmed);
  return isDecimal ? trimmed.replaceAll(/[\s,_']/g, '') : trimmed;
}

/** Converts the text of an amount in USD, which may name its currency ("$5", "5 USD"), to a plain decimal. */
export function usdOf(text: string): string {
  const [, sign = '', amount = ''] =
    /^(-?)\s*(?:US\$|USD|\$)?\s*([\d.,_'\s]+?)\s*(?:US\$|USD|\$)?$/i.exec(text.trim()) ?? [];
  return amount === '' ? text.trim() : sign + decimalOf(amount);
}

/** Idempotency key of a form with its values: a form that is sent again with other values is another request. */
export const onceOf = (once: string, body: object): string =>
  createHash('sha256')
    .update(`${once}\n${JSON.stringify(body)}`)
    .digest('hex');
