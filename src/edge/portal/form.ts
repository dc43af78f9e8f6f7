import { AppError } from '#base/errors.ts';
import { isFormToken } from '#core/sessions/sessions.ts';
import { type BodyReader, createMultipartBody, type HttpContext, wrongBody } from '#edge/http/http.ts';

/** Forms are read whole, at most 64 KiB of them. */
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

/** The fields of a form, of which the first of each name counts. */
export interface Form {
  readonly text: (name: string) => string;
  readonly has: (name: string) => boolean;
}

/** A form with a file, such as the zip of a stack. */
export const uploadBody: BodyReader = createMultipartBody({
  bodyBytesMax: 10 * 1024 * 1024 + 131_072,
  partsMax: 16,
  expected: 'a form with a file',
});

export interface UploadForm extends Form {
  /** Null where none was chosen. */
  readonly file: (name: string) => File | null;
}

/** To be called behind the middleware that reads `uploadBody`. @throws AppError for what is no form */
export async function readUpload({ req }: HttpContext): Promise<UploadForm> {
  const fields = await req.formData().catch(() => {
    throw wrongBody('is no form');
  });
  return {
    text(name) {
      const value = fields.get(name);
      return typeof value === 'string' ? value : '';
    },
    has: (name) => fields.has(name),
    file(name) {
      const value = fields.get(name);
      // What browsers send where no file was chosen.
      return value instanceof File && (value.name !== '' || value.size > 0) ? value : null;
    },
  };
}

/** To be called behind the middleware that reads `formBody`. */
export async function readForm({ req }: HttpContext): Promise<Form> {
  const fields = new URLSearchParams(await req.text());
  return { text: (name) => fields.get(name) ?? '', has: (name) => fields.has(name) };
}

/** @throws AppError insufficient_scope for a form that was not made for this session */
export function requireFormToken(form: Form, token: string): void {
  if (isFormToken(token, form.text('form_token'))) return;
  throw new AppError('insufficient_scope', {
    message: 'This form was made for another session: nothing was done. Open the page again and send it from there.',
  });
}

/**
 * A field for a whole number as the API takes it: empty is unlimited, and what is no number is refused there, by its name.
 * Groups are of three digits. A point is none of their marks, and no end of a whole number: some write "1.000" for a
 * thousand, which must not become a limit of one.
 */
export function numberOf(text: string): number | string | null {
  const trimmed = text.trim();
  if (trimmed === '') return null;
  const isWhole = /^-?(?:\d{1,17}|\d{1,3}(?:[\s,_']\d{3}){1,5})$/.test(trimmed);
  if (isWhole) return Number(trimmed.replaceAll(/[\s,_']/g, ''));
  return /^-?\d{1,17}\.\d{0,5}[1-9]$/.test(trimmed) ? Number(trimmed) : text;
}
