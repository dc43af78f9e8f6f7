import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { Media } from '#edge/inference/request/request.ts';
import { refuse } from './field-rule.ts';

/**
 * Rejects media that must not reach an engine.
 * @throws AppError unsupported_parameter, with the field in `param`
 */
export function refuseMedia(media: Media, { allow, mediaDomains, mediaMax }: EngineDefinition): void {
  const { uuid, tensor, promptEmbeds, pil } = media.params;
  // vLLM stores media under the name that they come with, for everybody who sends that name later.
  if (uuid !== null && !allow.includes('uuid')) {
    throw refuse(uuid, '"uuid" is not supported in parts. Omit it, and send the media with each request.');
  }
  if (!media.present) return;
  if (pil !== null) throw refuse(pil, 'Media cannot be sent as "image_pil". Send media as data: URLs.');
  if (tensor !== null && !allow.includes('media_embeds')) {
    throw refuse(tensor, 'Media cannot be sent as embeddings to this model. Send media as data: URLs.');
  }
  if (promptEmbeds !== null && !allow.includes('prompt_embeds')) {
    throw refuse(promptEmbeds, 'A "prompt_embeds" part is not supported for this model.');
  }
  for (const { url, param } of media.remote) checkUrl(url, param, mediaDomains);
  if (media.count > mediaMax) {
    throw refuse(
      media.params.any ?? 'messages',
      `A request may have at most ${mediaMax} images, audio files and videos.`,
    );
  }
}

/**
 * Matches only the plainest form. Parsers differ on credentials, backslashes, control characters and missing slashes,
 * so that another form could name one host here and another host in the engine.
 */
const plainUrl = /^https?:\/\/([a-z0-9.-]+)(?::\d{1,5})?(?:[/?#][\x21-\x5b\x5d-\x7e]*)?$/i;

function checkUrl(url: string, param: string, domains: readonly string[]): void {
  const host = plainUrl.exec(url)?.[1]?.toLowerCase();
  if (domains.some((domain) => host === domain.toLowerCase())) return;
  const hint =
    domains.length === 0 ? 'send the media as a data: URL' : `use a data: URL, or a URL of ${domains.join(', ')}`;
  throw refuse(param, `Media cannot be fetched from this address: ${hint}.`);
}
