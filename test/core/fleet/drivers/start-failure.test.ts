import { describe, expect, it } from 'vitest';
import { failureCause, type FailureKind } from '#core/fleet/drivers/failure-cause.ts';
import { explainExit } from '#core/fleet/drivers/start-failure.ts';

const exit = { stopRequested: false, exitCode: 1, signal: null, startErrorCode: null, oomKilled: false, logTail: '' };

describe('the cause of an exit', () => {
  it.each<[FailureKind, object]>([
    ['program_not_found', { exitCode: null, startErrorCode: 'ENOENT' }],
    ['not_executable', { exitCode: null, startErrorCode: 'EACCES' }],
    ['spawn_failed', { exitCode: null, startErrorCode: 'E2BIG' }],
    ['image_not_found', { exitCode: null, startErrorCode: 'IMAGE_NOT_FOUND' }],
    ['image_denied', { exitCode: null, startErrorCode: 'IMAGE_DENIED' }],
    ['memory', { exitCode: 1, oomKilled: true }],
    ['memory', { exitCode: 137, oomKilled: true }],
    ['killed', { exitCode: null, signal: 'SIGKILL' }],
    ['killed', { exitCode: null, signal: 'SIGTERM' }],
    ['killed', { exitCode: 137 }],
    ['killed', { exitCode: 143 }],
    ['crashed', { exitCode: 139 }],
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
    ['memory_settings', { logTail: 'ValueError: No available memory for the cache blocks. Try increasing it.' }],
    [
      'memory_settings',
      {
        logTail:
          'ValueError: 16.00 GiB KV cache is needed, which is larger than the available KV cache memory (6.81 GiB)',
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
    [
      'adapter_missing',
      {
        logTail:
          "FileNotFoundError: [Errno 2] No such file or directory: '/models/no-such/adapter_config.json'\nValueError: Loading lora style failed: No adapter found for <path>",
      },
    ],
    ['bad_arguments', { logTail: 'ValueError: LoRA rank 64 is greater than max_lora_rank 16.' }],
    ['port_in_use', { logTail: 'Error: listen EADDRINUSE: address already in use' }],
    ['no_accelerator', { logTail: 'RuntimeError: Failed to infer device type, please set the environment variable' }],
    ['bad_arguments', { logTail: "KeyError: 'invalid tool call parser: nope (chose from { hermes })'" }],
  ])('is %s', (kind, over) => {
    expect(explainExit({ ...exit, ...over }).kind).toBe(kind);
  });

  it.each<[string, object]>([
    ['it was killed by SIGKILL', { exitCode: 137 }],
    ['it was killed by SIGTERM', { exitCode: null, signal: 'SIGTERM' }],
    ['the kernel killed it because memory ran out', { exitCode: 137, oomKilled: true }],
  ])('is one sentence for an exit that was forced from outside: %s', (detail, over) => {
    expect(explainExit({ ...exit, logTail: 'INFO: loading weights', ...over }).detail).toBe(detail);
  });

  it("hides the engine's output from clients", () => {
    const { publicText } = explainExit({ ...exit, logTail: 'EADDRINUSE /root/secret.sock' });
    expect(publicText).toBe(failureCause('port_in_use').publicText);
    expect(publicText).not.toMatch(/root|sock/);
  });
});

/** Lines from reports of users; each name has the project and the number of its report. */
describe('a cause that the log of an engine names', () => {
  const samples: [string, FailureKind, RegExp, string[]][] = [
    [
      'CUDA error 803 (gpustack 4678)',
      'driver_mismatch',
      /^Reboot the host/,
      [
        '(EngineCore_DP0 pid=406) ERROR 01-30 13:26:29 [core.py:946] RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 803: system has unsupported display driver / cuda driver combination',
      ],
    ],
    [
      'CUDA error 804 (vllm 5510)',
      'driver_too_old',
      /^Update the NVIDIA driver/,
      [
        'ERROR 06-06 14:09:57 worker_base.py:148] RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 804: forward compatibility was attempted on non supported HW',
      ],
    ],
    [
      'a driver that is too old (vllm 33992)',
      'driver_too_old',
      /^Update the NVIDIA driver/,
      [
        'RuntimeError: The NVIDIA driver on your system is too old (found version 12090). Please update your GPU driver by downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx',
        'RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}',
      ],
    ],
    [
      'a driver that is too old, where vLLM only misses the device',
      'driver_too_old',
      /^Update the NVIDIA driver/,
      [
        '/usr/local/lib/python3.12/dist-packages/torch/cuda/__init__.py:180: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 12080). Please update your GPU driver',
        'RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG` to turn on verbose logging',
      ],
    ],
    [
      'a GPU without kernels (vllm 14452)',
      'gpu_unsupported',
      /^Use an image that is built for this GPU/,
      [
        'ERROR 07-28 15:07:22 [core.py:632]     _ = torch.zeros(1, device=device)',
        'ERROR 07-28 15:07:22 [core.py:632] RuntimeError: CUDA error: no kernel image is available for execution on the device',
        'ERROR 07-28 15:07:22 [core.py:632] CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.',
      ],
    ],
    [
      "a time-out of NCCL's watchdog (vllm 6042)",
      'nccl_timeout',
      /^Check the GPUs and their links/,
      [
        '[rank0]:[E ProcessGroupNCCL.cpp:563] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=134217728, NumelOut=134217728, Timeout(ms)=600000) ran for 600059 milliseconds before timing out.',
        '[rank0]:[E ProcessGroupNCCL.cpp:583] [Rank 0] To avoid data inconsistency, we are taking the entire process down.',
      ],
    ],
    [
      'GPUs that wait for each other (vllm 12526)',
      'nccl_timeout',
      /^Check the GPUs and their links/,
      ['torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cpu//0/0'],
    ],
    [
      'shared memory that is too small (llm-d 352)',
      'shm_too_small',
      /^Raise shm_size/,
      [
        'vllm-0:3663:4044 [0] misc/shmutils.cc:129 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Ewjreo (size 33030528), error: No space left on device (28)',
        'torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5',
      ],
    ],
    [
      'shared memory that is too small, as Ray reports it (gpustack 5014)',
      'shm_too_small',
      /^Raise shm_size/,
      [
        '[2026-03-25 05:44:29,435 W 39 39] (raylet) store_runner.cc:83: System memory request exceeds memory available in /dev/shm. The request is for 10200547328 bytes, and the amount available is 9663676416 bytes.',
      ],
    ],
    [
      'a gated model (gemma3-object-detection 5)',
      'token',
      /^Accept the terms of the model/,
      [
        '403 Client Error. (Request ID: Root=1-6824e511-0a1d60376d4eefac56a9c456)',
        'Cannot access gated repo for url https://huggingface.co/google/gemma-3-4b-pt/resolve/main/config.json.',
        'Access to model google/gemma-3-4b-pt is restricted and you are not in the authorized list. Visit https://huggingface.co/google/gemma-3-4b-pt to ask for access.',
      ],
    ],
    [
      'a full disk, as Python reports it (sagemaker-huggingface 80)',
      'disk_full',
      /^Free space on the disk/,
      ["OSError: [Errno 28] No space left on device: '/root/.cache/huggingface/hub/models--x/blobs/1.incomplete'"],
    ],
    [
      'a full disk, as the downloader reports it (tt-forge 2987)',
      'disk_full',
      /^Free space on the disk/,
      ['RuntimeError: Data processing error: CAS service error : IO Error: No space left on device (os error 28)'],
    ],
    [
      'an argument that another version had (vllm-omni 1364)',
      'unknown_argument',
      /^Remove the argument/,
      [
        'usage: vllm [-h] [-v] {chat,complete,serve,bench,collect-env,run-batch} ...',
        'vllm: error: unrecognized arguments: --omni',
      ],
    ],
  ];

  it.each(samples)('is recognized, with what to do: %s', (_, kind, cure, log) => {
    const cause = explainExit({ ...exit, logTail: log.join('\n') });
    expect(cause).toMatchObject({ kind, detail: expect.stringMatching(cure) });
    expect(cause.detail?.split('. ')[0]).not.toMatch(/\bError\b|pid=/);
  });

  it.each<[FailureKind, string, string]>([
    [
      'driver_too_old',
      'CONTAINER_REFUSED',
      "failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running hook #0: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your driver to a newer version, or use an earlier cuda container: unknown",
    ],
    ['disk_full', 'IMAGE_PULL_FAILED', 'failed to register layer: write /usr/lib/x.so: no space left on device'],
  ])('is recognized where Docker refuses the start: %s', (kind, startErrorCode, logTail) => {
    expect(explainExit({ ...exit, exitCode: null, startErrorCode, logTail }).kind).toBe(kind);
  });
});

/** As vLLM 0.29, Python 3.11 and Node 24 wrote them, with the paths made shorter. */
describe('the cause line for operators', () => {
  const traceback = [
    '(APIServer pid=7672) Traceback (most recent call last):',
    '(APIServer pid=7672)   File "/venv/bin/vllm", line 8, in <module>',
    '(APIServer pid=7672)     sys.exit(main())',
    '(APIServer pid=7672)              ^^^^^^',
  ];
  const details: [string, { log?: string[]; errors?: string[] }, string][] = [
    [
      'is the exception of Node, not its version',
      {
        log: [
          'node:internal/modules/cjs/loader:1424',
          '  throw err;',
          '  ^',
          '',
          "Error: Cannot find module '/srv/engine.js'",
          '    at Module._resolveFilename (node:internal/modules/cjs/loader:1421:15)',
          '    at node:internal/main/run_main_module:33:47 {',
          "  code: 'MODULE_NOT_FOUND',",
          '  requireStack: []',
          '}',
          '',
          'Node.js v24.21.0',
        ],
      },
      "Error: Cannot find module '/srv/engine.js'",
    ],
    [
      'is the exception of Python, not a line of its stack',
      {
        log: [
          ...traceback,
          "(APIServer pid=7672) KeyError: 'invalid tool call parser: nope (chose from { hermes })'",
          '',
        ],
      },
      "KeyError: 'invalid tool call parser: nope (chose from { hermes })'",
    ],
    [
      'is the cause that stands above, not the one that points to it',
      {
        log: [
          '(EngineCore pid=9) ERROR 11-22 12:47:47 [core.py:1210] EngineCore failed to start.',
          '(EngineCore pid=9) ERROR 11-22 12:47:47 [core.py:1210] Traceback (most recent call last):',
          '(EngineCore pid=9) ERROR 11-22 12:47:47 [core.py:1210]   File "/venv/vllm/v1/engine/core.py", line 1200, in run',
          '(EngineCore pid=9) ERROR 11-22 12:47:47 [core.py:1210] ValueError: the block size 7 is not one of 16, 32',
          ...traceback,
          '(APIServer pid=7672) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}',
          '/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked shared_memory objects to clean up at shutdown',
          "  warnings.warn('resource_tracker: There appear to be %d '",
        ],
      },
      'ValueError: the block size 7 is not one of 16, 32',
    ],
    [
      'says which mistake, not only how many there are',
      {
        log: [
          ...traceback,
          '(APIServer pid=12) pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig',
          '(APIServer pid=12)   Value error, User-specified max_model_len (999999) is greater than the derived max_model_len',
          '(APIServer pid=12)     For further information visit https://errors.pydantic.dev/2.14/v/value_error',
        ],
      },
      'pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig Value error, User-specified max_model_len (999999) is greater than the derived max_model_len',
    ],
    [
      'is what stands on stderr, whatever was printed after it',
      {
        log: [
          'vllm: error: unrecognized arguments: --no-such-flag',
          'INFO 11-22 12:45:10 [importing.py:98] Triton not installed or not compatible; certain functions are not available.',
        ],
        errors: ['usage: vllm [-h] [-v]', 'vllm: error: unrecognized arguments: --no-such-flag'],
      },
      'Remove the argument, or use a version of the engine that has it. vllm: error: unrecognized arguments: --no-such-flag',
    ],
    [
      'is what stands on stderr although it has no word for trouble',
      { log: ['the model wears the wrong hat', 'loading', 'bye'], errors: ['the model wears the wrong hat'] },
      'the model wears the wrong hat',
    ],
    [
      'is an exception of the log where stderr only points to it',
      {
        log: [
          '(EngineCore pid=9) ERROR 11-22 12:47:47 [core.py:1210] ValueError: no block is left',
          'RuntimeError: See root cause above.',
        ],
        errors: ['RuntimeError: See root cause above.'],
      },
      'ValueError: no block is left',
    ],
    [
      'is no answered probe and no colour',
      {
        log: [
          '\u001b[31mthe tokenizer is missing\u001b[0m',
          '(APIServer pid=1) INFO:     127.0.0.1:50402 - "GET /health HTTP/1.1" 200 OK',
          'srv  log_server_r: request: GET /health 127.0.0.1 200',
        ],
      },
      'the tokenizer is missing',
    ],
    ['is the last one where none says anything', { log: ['    at nowhere', 'Node.js v24.21.0'] }, 'Node.js v24.21.0'],
    ['is not there where nothing was written', {}, ''],
  ];
  it.each(details)('%s', (_, { log = [], errors }, detail) => {
    const tails = { logTail: log.join('\n'), ...(errors !== undefined && { errorTail: errors.join('\n') }) };
    expect(explainExit({ ...exit, ...tails }).detail ?? '').toBe(detail);
  });

  it('ignores a warning that only mentions memory', () => {
    const logTail = 'WARNING 11-22 12:47:47 [x.py:1] This may end in CUDA out of memory.\nValueError: no such thing';
    expect(explainExit({ ...exit, logTail })).toMatchObject({ kind: 'crashed', detail: 'ValueError: no such thing' });
  });
});
