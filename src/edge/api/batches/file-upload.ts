import { createHash } from 'node:crypto';
import { AppError } from '#base/errors.ts';
import type { Author } from '#core/audit/audit.ts';
import type { Files, FileWriter, StoredFile } from '#core/files/files.ts';
import { answeredMeanwhile } from '#core/stored-requests/stored-requests.ts';
import type { Guards } from '#edge/api/shared/shared.ts';
import {
  authorOf,
  type BodyLimits,
  type BodyShares,
  type Caller,
  callerId,
  type HttpContext,
  type PartSink,
  type Problem,
  readMultipart,
  streamedBody,
  ValidationError,
} from '#edge/http/http.ts';

/** Receives a form with a file, which is written while it arrives. Fields may precede or follow the file. */

export interface FileUploadParts {
  readonly guards: Pick<Guards, 'setContent' | 'isRepeated'>;
  readonly files: Files;
  readonly limits: Omit<BodyLimits, 'bodyBytesMax'>;
  readonly shares: BodyShares;
}

const partsMax = 16;
const fieldBytesMax = 4096;
/** Bytes counted for an upload: an unwritten part of the file, the received bytes of the next part, and the form. */
const heldBytes = 1_048_576;
/** Most bytes of the form besides the file. */
const formBytesMax = 65_536;
const fieldNames = ['purpose', 'expires_after[anchor]', 'expires_after[seconds]'] as const;
type FieldName = (typeof fieldNames)[number];

const keepSecondsMin = 3600;
const keepSecondsMax = 2_592_000;

const problem = (field: string, message: string): ValidationError => new ValidationError([{ field, message }]);

/** @throws AppError for an invalid form, for a file that may not be stored, and for a repeated earlier request */
export async function receiveFile(
  parts: FileUploadParts,
  context: HttpContext,
  organizationId: string,
): Promise<StoredFile> {
  const { files, shares, limits, guards } = parts;
  const contentType = context.req.header('content-type') ?? '';
  if (contentType.split(';')[0]?.trim().toLowerCase() !== 'multipart/form-data') {
    throw new AppError('unsupported_media_type', { message: 'Send the file as multipart/form-data.' });
  }
  const caller = context.get('caller');
  if (organizationId !== caller.organizationId) throw ofOthers();
  const length = Number(context.req.header('content-length') ?? NaN);
  if (length > files.fileBytesMax + formBytesMax) throw tooLarge(files);
  const hold = shares.hold(callerId(caller));
  const isRepeated = await guards.isRepeated(context);
  const upload = new Upload(parts, caller, { length: Number.isNaN(length) ? null : length, isKept: !isRepeated });
  try {
    hold.grow(heldBytes);
    const body = streamedBody(context.env.incoming, limits);
    await readMultipart(body, { contentType, partsMax }, (head) => upload.part(head));
    guards.setContent(context, upload.content());
    if (isRepeated) throw answeredMeanwhile();
    return await upload.complete(authorOf(context));
  } catch (error) {
    await upload.abort();
    throw error;
  } finally {
    hold.release();
  }
}

const ofOthers = (): AppError =>
  new AppError('insufficient_scope', {
    message: 'Only keys and users of an organization can upload its files.',
  });

const tooLarge = ({ fileBytesMax }: Files): AppError =>
  new AppError('request_too_large', { message: `The file is too large: at most ${fileBytesMax} bytes are allowed.` });

interface UploadOptions {
  /** Length of the form in bytes; null if unknown. */
  readonly length: number | null;
  /** False for a form that is only read to compare it, and is not stored. */
  readonly isKept: boolean;
}

class Upload {
  readonly #parts: FileUploadParts;
  readonly #caller: Caller;
  readonly #options: UploadOptions;
  readonly #fields = new Map<FieldName, string>();
  readonly #hash = createHash('sha256');
  #writer: FileWriter | null = null;
  #filename = '';
  /** Bytes of the file received so far. */
  #bytes = 0;

  constructor(parts: FileUploadParts, caller: Caller, options: UploadOptions) {
    this.#parts = parts;
    this.#caller = caller;
    this.#options = options;
  }

  part({ name, filename }: { readonly name: string; readonly filename: string | null }): PartSink {
    if (name === 'file') return this.#file(filename);
    const field = fieldNames.find((one) => one === name);
    if (field === undefined) throw problem(name.slice(0, 64), 'is not a known field');
    if (this.#fields.has(field)) throw problem(field, 'is sent more than once');
    this.#fields.set(field, '');
    return this.#field(field);
  }

  #field(name: FieldName): PartSink {
    const taken: Buffer[] = [];
    let bytes = 0;
    return {
      add(part) {
        bytes += part.length;
        if (bytes > fieldBytesMax) throw problem(name, `must have at most ${fieldBytesMax} bytes`);
        taken.push(Buffer.from(part));
      },
      end: () => void this.#fields.set(name, Buffer.concat(taken).toString('utf8')),
    };
  }

  #file(filename: string | null): PartSink {
    if (this.#filename !== '') throw problem('file', 'is sent more than once');
    if (filename === null) throw problem('file', 'must be a file, sent as one part with a file name');
    this.#filename = shownName(filename);
    // Checks fields before the file early, before anything is written.
    if (this.#fields.has('purpose')) this.#requirePurpose();
    return {
      add: async (bytes) => {
        this.#bytes += bytes.length;
        // A form that is only compared has no writer that limits it.
        if (this.#bytes > this.#parts.files.fileBytesMax) throw tooLarge(this.#parts.files);
        this.#hash.update(bytes);
        const writer = await this.#opened();
        await writer?.add(bytes);
      },
      end: async () => void (await this.#opened()),
    };
  }

  async #opened(): Promise<FileWriter | null> {
    if (this.#options.isKept) this.#writer ??= await this.#open();
    return this.#writer;
  }

  #open(): Promise<FileWriter> {
    const { length } = this.#options;
    const { organizationId, project, actor } = this.#caller;
    const { files } = this.#parts;
    return files.create({
      organizationId,
      projectId: project.id,
      keyId: actor.kind === 'key' ? actor.key.id : null,
      purpose: 'batch',
      keepSeconds: null,
      bytesMax: Math.min(length ?? Infinity, files.fileBytesMax),
      isGuess: length === null,
    });
  }

  /** Returns a text that is equal for forms with the same parts, whatever stands between the parts. */
  content(): string {
    const fields = [...this.#fields].map(([name, value]) => `${name}=${value}`).toSorted();
    return JSON.stringify([...fields, this.#filename, this.#hash.digest('hex')]);
  }

  async complete({ created }: Author): Promise<StoredFile> {
    const writer = this.#writer;
    const problems: Problem[] = [];
    if (writer === null) problems.push({ field: 'file', message: 'is missing' });
    if (!this.#fields.has('purpose')) problems.push({ field: 'purpose', message: 'is missing' });
    if (problems.length > 0 || writer === null) throw new ValidationError(problems);
    this.#requirePurpose();
    const keepSeconds = readKeepSeconds(this.#fields);
    await writer.flush();
    const expiresAtMs = this.#parts.files.expiryOf(writer.createdAtMs, keepSeconds);
    return writer.complete({ filename: this.#filename, expiresAtMs, created });
  }

  async abort(): Promise<void> {
    await this.#writer?.abort();
  }

  #requirePurpose(): void {
    if (this.#fields.get('purpose') !== 'batch')
      throw problem('purpose', 'must be batch: no other purpose is supported');
  }
}

/**
 * Returns a file name without folders, control characters and invalid Unicode, which terminals or PostgreSQL cannot
 * handle.
 */
function shownName(name: string): string {
  const last = name.split(/[/\\]/).at(-1) ?? '';
  const shown = last
    .replaceAll(/\p{Cc}/gu, '')
    .toWellFormed()
    .slice(0, 255);
  return shown === '' ? 'file' : shown;
}

function readKeepSeconds(fields: ReadonlyMap<FieldName, string>): number | null {
  const [anchor, seconds] = [fields.get('expires_after[anchor]'), fields.get('expires_after[seconds]')];
  if (anchor === undefined && seconds === undefined) return null;
  if (anchor !== 'created_at') throw problem('expires_after.anchor', 'must be created_at');
  const kept = /^\d{1,9}$/.test(seconds ?? '') ? Number(seconds) : NaN;
  if (kept >= keepSecondsMin && kept <= keepSecondsMax) return kept;
  throw problem('expires_after.seconds', `must be a whole number from ${keepSecondsMin} to ${keepSecondsMax}`);
}
