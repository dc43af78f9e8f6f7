import { describe, expect, it } from 'vitest';
import { explainExit, failureCause, type FailureKind } from '#core/fleet/start-failure.ts';

const exit = { asked: false, exitCode: 1, signal: null, startErrorCode: null, oomKilled: false, logTail: '' };

describe('the cause of an exit', () => {
  it.each<[FailureKind, object]>([
    ['program_not_found', { exitCode: null, startErrorCode: 'ENOENT' }],
    ['not_executable', { exitCode: null, startErrorCode: 'EACCES' }],
    ['spawn_failed', { exitCode: null, startErrorCode: 'E2BIG' }],
    ['image_not_found', { exitCode: null, startErrorCode: 'IMAGE_NOT_FOUND' }],
    ['image_denied', { exitCode: null, startErrorCode: 'IMAGE_DENIED' }],
    ['memory', { exitCode: 1, oomKilled: true }],
    ['memory', { exitCode: null, signal: 'SIGKILL' }],
    ['memory', { exitCode: 137 }],
    ['bad_arguments', { exitCode: 2 }],
    ['ended', { exitCode: 0 }],
    ['crashed', { exitCode: null, signal: 'SIGSEGV' }],
    ['crashed', { exitCode: null }],
    ['token', { logTail: 'OSError: You are trying to access a gated repo.\nMake sure to have access to it at' }],
    [
      'weights_not_found',
      {
        logTail:
          'Repository Not Found for url: https://huggingface.co/api/models/x.\nIf you are trying to access a private or gated repo, make sure you are authenticated.',
      },
    ],
    [
      'memory',
      {
        logTail:
          'ValueError: Free memory on device (3.2/23.6 GiB) on startup is less than desired GPU memory utilization (0.9, 21.2 GiB).',
      },
    ],
    [
      'memory',
      {
        logTail:
          'ValueError: Available memory on node 0 (9.61/12.84 GiB) on kv cache allocation is less than requested memory for kv (4000.0 GiB).\nRuntimeError: Engine core initialization failed. See root cause above.',
      },
    ],
    [
      'weights_not_found',
      {
        logTail:
          'huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the specified revision',
      },
    ],
    [
      'bad_arguments',
      {
        logTail:
          'pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, User-specified max_model_len (9999999) is greater',
      },
    ],
    ['port_in_use', { logTail: 'Error: listen EADDRINUSE: address already in use' }],
    ['no_accelerator', { logTail: 'RuntimeError: Failed to infer device type, please set the environment variable' }],
    ['bad_arguments', { logTail: "KeyError: 'invalid tool call parser: nope (chose from { hermes })'" }],
  ])('is %s', (kind, over) => {
    expect(explainExit({ ...exit, ...over }).kind).toBe(kind);
  });

  it('says nothing of what the engine wrote', () => {
    const { publicText } = explainExit({ ...exit, logTail: 'EADDRINUSE /root/secret.sock' });
    expect(publicText).toBe(failureCause('port_in_use').publicText);
    expect(publicText).not.toMatch(/root|sock/);
  });
});
