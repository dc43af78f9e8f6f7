import { AppError } from '#base/errors.ts';
import { allowableFields, type Model } from '#core/catalog/catalog.ts';
import type { RequestFields } from './fields.ts';
import { parseMember } from './member.ts';

/**
 * Fields that are not handed to an engine unless its file allows them: they reach into its scheduling, its cache
 * transfer or its templates, or make it fetch something from inside its network.
 */

const refuse = (param: string, message: string): AppError => new AppError('unsupported_parameter', { message, param });

const plainlyRefused = allowableFields.filter((field) => field !== 'encoding_format');

/** @throws AppError unsupported_parameter, the field in `param` */
export function refuseUnsupported(fields: RequestFields, model: Model, choicesMax: number): void {
  const allowed: readonly string[] = model.engine.allow;
  for (const field of plainlyRefused) {
    const member = fields.members.get(field);
    if (member === undefined || allowed.includes(field)) continue;
    if (fields.text.slice(member.valueStart, member.valueEnd) === 'null') continue;
    throw refuse(field, `"${field}" is not supported for this model.`);
  }
  refuseEncoding(fields, allowed);
  if (fields.serviceTier === 'flex' && model.engine.flexPricing === null) {
    throw refuse('service_tier', 'The service tier "flex" is not offered for this model.');
  }
  const limit = model.engine.nMax ?? choicesMax;
  if (fields.choices > limit) throw refuse('n', `"n" may be at most ${limit}.`);
  refuseRemoteMedia(fields, model.engine.mediaDomains);
}

/** `bytes` hides the usage in a header and `bytes_only` has none at all, so neither could be billed. */
function refuseEncoding(fields: RequestFields, allowed: readonly string[]): void {
  const member = fields.members.get('encoding_format');
  if (member === undefined || allowed.includes('encoding_format')) return;
  const value = parseMember(fields.text, member);
  if (value === 'bytes' || value === 'bytes_only') {
    throw refuse('encoding_format', '"encoding_format" may be "float" or "base64".');
  }
}

function refuseRemoteMedia({ media }: RequestFields, domains: readonly string[]): void {
  for (const { url, param } of media.remote) checkUrl(url, param, domains);
}

/**
 * Only the plainest form counts: what parsers read differently (credentials, backslashes, control characters, missing
 * slashes) could name one host here and another one in the engine.
 */
const plainUrl = /^https?:\/\/([a-z0-9.-]+)(?::\d{1,5})?(?:[/?#][\x21-\x5b\x5d-\x7e]*)?$/i;

function checkUrl(url: string, param: string, domains: readonly string[]): void {
  const host = plainUrl.exec(url)?.[1]?.toLowerCase();
  if (domains.some((domain) => host === domain.toLowerCase())) return;
  const hint =
    domains.length === 0 ? 'send the media as a data: URL' : `allowed are data: URLs and ${domains.join(', ')}`;
  throw refuse(param, `Media cannot be fetched from this address: ${hint}.`);
}
