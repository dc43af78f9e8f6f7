/**
 * Minor releases of vLLM that were tried with this version of Headgate, oldest first, and what Headgate has to know of
 * each beyond the one before. `npm run vllm:diff -- OLD NEW` prints all differences of two installed releases; a test
 * compares this table with the installed ones.
 */
export interface VllmVersion {
  /** Minor release, such as `0.29`. */
  readonly minor: string;
  /** The release that was tried. */
  readonly tried: string;
  /** Differences from the row before that concern Headgate; the first row has none. */
  readonly differs: VllmDifferences;
}

/** Names of things with what Headgate does about them. */
type Decisions = Readonly<Record<string, string>>;

export interface Change {
  readonly added?: Decisions;
  readonly gone?: Decisions;
  readonly changed?: Decisions;
}

export interface VllmDifferences {
  /** Such as `POST /abort_requests`. */
  readonly routes: Change;
  /** Request fields as `place field`; complete, because `vllm-fields.ts` decides each. */
  readonly fields: Change;
  /** Members of `usage` in answers. */
  readonly usage: Change;
  readonly metrics: Change;
  /** Arguments of `vllm serve`. */
  readonly flags: Change;
  readonly aborts: Change;
  /** Texts and statuses of errors. */
  readonly failures: Change;
}

const none: VllmDifferences = { routes: {}, fields: {}, usage: {}, metrics: {}, flags: {}, aborts: {}, failures: {} };

const ignored = 'passed: it has an effect only on routes that render prompts, of whose answers clients get a number';
const watermark = 'passed: it applies a watermark only if the engine was started with one, and costs nothing';

export const vllmVersions: readonly VllmVersion[] = [
  { minor: '0.29', tried: '0.29.0', differs: none },
  {
    minor: '0.32',
    tried: '0.32.0',
    differs: {
      routes: {
        added: {
          'POST /inference/v1/abort_requests': 'not used: it is there only with --enable-scale-out',
          'POST /release_kv_cache_memory': 'not used: sleep levels free the memory',
          'POST /v1/responses/render': 'counts for /v1/responses/input_tokens; it answers only with --enable-scale-out',
        },
        changed: {
          'POST /wake_up':
            'answers {"status": "awake" | "sleeping"} instead of an empty body; Headgate reads the status 200',
          'POST /sleep': 'answers {"status": "sleeping", "level": 1}, and rejects other levels than 0 to 2',
        },
      },
      fields: {
        added: {
          '/v1/responses stop_token_ids': 'bounded as on chat',
          '/v1/responses min_p': 'passed as on chat',
          '/v1/messages thinking': 'passed: its tokens are output tokens, within max_tokens',
          '/v1/messages/count_tokens thinking': 'passed: counts no output',
          '/v1/messages/count_tokens output_config': 'passed: builds no grammar',
          ...each('mm_payload', ignored),
          ...each('return_mm_kwargs', ignored),
          ...each('watermarking', watermark),
        },
        changed: {
          '/v1/messages messages': 'tool_addition and tool_removal pass; a tool that a message defines is rejected',
          '/v1/responses tools':
            'custom tools without a grammar are served; older versions ignore them, and fail on custom_tool_call items',
        },
        gone: { '/v1/chat/completions return_assistant_tokens_mask': 'passed to older versions' },
      },
      usage: {
        added: {
          'input_tokens_details.cache_write_tokens':
            'shown to the client and in the record; part of input_tokens, and billed only as such',
        },
      },
      metrics: { added: { 'vllm:admission_rejections': 'passed on to monitoring' } },
      flags: {
        added: {
          '--trust-request-mm-kwargs': 'required beside allow: [mm_processor_kwargs] or [media_io_kwargs]',
          '--grpc-port': 'not rejected: it works only with VLLM_USE_RUST_FRONTEND, which is',
          '--enable-scale-out': 'not rejected: only Headgate reaches the routes',
        },
      },
      aborts: {
        changed: {
          'POST /abort_requests': 'aborts everything if request_ids is empty; Headgate never sends an empty list',
        },
      },
      failures: {
        changed: {
          'validation errors': 'name a field by a text such as messages.0.role, and list at most ten mistakes',
        },
      },
    },
  },
];

/** Returns a field of all routes that generate text, with one decision. */
function each(field: string, decision: string): Decisions {
  const routes = ['/v1/chat/completions', '/v1/completions', '/v1/messages', '/v1/responses'];
  return Object.fromEntries(routes.map((route) => [`${route} ${field}`, decision]));
}

/**
 * Returns the minor release of a version as vLLM reports it, such as `0.32` for `0.32.1.dev4+gabc`; null for a text that
 * is no version.
 */
function minorOf(version: string): string | null {
  return /^v?(\d+\.\d+)(?![\d])/.exec(version)?.[1] ?? null;
}

/**
 * True if an engine has what a minor release of vLLM brought. An engine of unknown version counts as the newest that was
 * tried: a cold engine has reported none yet.
 * @param version as vLLM reports it; null if unknown
 * @param minor such as `0.32`
 */
export function isVllmSince(version: string | null, minor: string): boolean {
  const parts = (text: string): number[] => text.split('.').map(Number);
  const own = version === null ? null : minorOf(version);
  if (own === null) return true;
  const [[major = 0, middle = 0], [majorMin = 0, middleMin = 0]] = [parts(own), parts(minor)];
  return major > majorMin || (major === majorMin && middle >= middleMin);
}

/** True if this version of Headgate was tried with the minor release of a vLLM. */
export function isTriedVllm(version: string): boolean {
  return vllmVersions.some(({ minor }) => minor === minorOf(version));
}
