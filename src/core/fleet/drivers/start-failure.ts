import { type FailureCause, failureCause, type FailureKind } from './failure-cause.ts';
import { type ReplicaExit, startErrors } from './replica-exit.ts';
import { isCalm, lastCauseOf, causeLine, messageOf } from './cause-line.ts';

const kindOfStartError: Readonly<Record<string, FailureKind>> = {
  ENOENT: 'program_not_found',
  // The PATH names a file where it should name a folder, and no other folder has the program.
  ENOTDIR: 'program_not_found',
  EACCES: 'not_executable',
  EPERM: 'not_executable',
  ENOMEM: 'memory',
  EAGAIN: 'memory',
  EADDRINUSE: 'port_in_use',
  ENOSPC: 'disk_full',
  [startErrors.missingVariable]: 'missing_setting',
  [startErrors.hostUnreachable]: 'host_unreachable',
  [startErrors.imageDenied]: 'image_denied',
  [startErrors.imageNotFound]: 'image_not_found',
  [startErrors.pullFailed]: 'image_not_loaded',
  [startErrors.mount]: 'mount_not_found',
  [startErrors.noSuchDevice]: 'no_accelerator',
  [startErrors.noSuitableNode]: 'no_node',
};

type Sign = readonly [FailureKind, RegExp];

/** Messages of the Docker engine and of engines alike; more reliable than the code of a failed start. */
const hostSigns: readonly Sign[] = [
  // NCCL and PyTorch name the folder or the limit: the text about the device without them is that of a full disk.
  [
    'shm_too_small',
    /creating shared memory segment \S*nccl|failed to extend \/dev\/shm|No space left on device: '?\/dev\/shm|insufficient shared memory \(shm\)|exceeds memory available in \/dev\/shm/,
  ],
  ['disk_full', /no space left on device|\[Errno 28\]|os error 28|StorageFull/i],
  ['driver_mismatch', /Error 803\b|unsupported display driver \/ cuda driver combination/],
  [
    'driver_too_old',
    /Error 804\b|forward compatibility was attempted|NVIDIA driver on your system is too old|driver version is insufficient for CUDA runtime|unsatisfied condition: cuda ?>=/,
  ],
  ['gpu_unsupported', /no kernel image is available/],
];

/**
 * Messages of failing engines, most reliable first: the first match applies. The texts are those of vLLM 0.29, PyTorch,
 * transformers, huggingface_hub, uvicorn and Node. huggingface_hub answers 401 for both missing and private
 * repositories, so only its messages about gated repositories are attributed to the token.
 */
const logSigns: readonly Sign[] = [
  // An old driver only causes a warning where the engine does not use it; argparse ends the program.
  ['unknown_argument', /error: unrecognized arguments/],
  [
    'token',
    /GatedRepoError|Cannot access gated repo|You are trying to access a gated repo|awaiting a review from the repo authors/,
  ],
  ...hostSigns,
  [
    'nccl_timeout',
    /Watchdog caught collective operation timeout|DistStoreError: (?:wait timeout|Timed out)|client socket has timed out/,
  ],
  ['adapter_missing', /LoRAAdapterNotFoundError|Loading lora .* failed: No adapter found/],
  [
    'weights_not_found',
    /RepositoryNotFoundError|Repository Not Found|is not a valid model identifier|Invalid repository ID or local directory|does not appear to have (?:a file named|files named)|Can't load the configuration of|Cannot find any model weights|LocalEntryNotFoundError|We couldn't connect to|Repo id must be in the form/,
  ],
  // Independent of other engines: vLLM computes its own memory limit.
  ['memory_settings', /No available memory for the cache blocks|larger than the available KV cache memory/],
  [
    'memory',
    /out of memory|OutOfMemoryError|less than desired GPU memory utilization|less than requested memory for kv|can't allocate memory|Cannot allocate memory|std::bad_alloc|^MemoryError/im,
  ],
  ['port_in_use', /EADDRINUSE|[Aa]ddress already in use/],
  [
    'no_accelerator',
    /No CUDA GPUs are available|Failed to infer device type|Found no NVIDIA driver|invalid device ordinal|no CUDA-capable device/,
  ],
  [
    'bad_arguments',
    /error: argument |error: the following arguments are required|LoRA rank \d+ is greater than max_lora_rank|invalid tool call parser|invalid reasoning parser|ValidationError: .* validation error/,
  ],
];

const detailCharsMax = 500;

/**
 * Determines the cause from how a process ended and from its last output. The detail is the explaining line, for
 * operators.
 */
export function explainExit(exit: ReplicaExit): FailureCause {
  const lines = linesOf(exit.logTail);
  const errors = linesOf(exit.errorTail ?? '');
  const detail = (text: string): string => text.trim().slice(0, detailCharsMax);
  const reported = detail(causeLine(lines, errors) || messageOf(lines.at(-1) ?? ''));
  if (exit.startErrorCode !== null) {
    const sign = hostSigns.find(([, text]) => text.test(exit.logTail));
    return failureCause(sign?.[0] ?? kindOfStartError[exit.startErrorCode] ?? 'spawn_failed', reported);
  }
  if (exit.oomKilled) return failureCause('memory', 'the kernel killed it because memory ran out');
  const grave = lines.filter((line) => !isCalm(line)).join('\n');
  for (const [kind, sign] of logSigns) {
    if (!sign.test(grave)) continue;
    return failureCause(kind, detail(lastCauseOf(lines, (line) => sign.test(line)) || reported));
  }
  const signal = signalOf(exit);
  return signal === null
    ? failureCause(kindOfEnd(exit), reported)
    : failureCause('killed', `it was killed by ${signal}`);
}

function linesOf(text: string): string[] {
  return text.split(/\r?\n/).filter((line) => line.trim() !== '');
}

/** Signals that others send, with their Linux numbers. SIGSEGV and similar signals come from the program itself. */
const outsideSignals: Readonly<Record<string, number>> = { SIGHUP: 1, SIGINT: 2, SIGQUIT: 3, SIGKILL: 9, SIGTERM: 15 };

/**
 * Returns the signal that ended the replica from outside, or null. Shells and containers report 128 plus its number.
 */
function signalOf({ signal, exitCode }: ReplicaExit): string | null {
  const found = Object.entries(outsideSignals).find(([name, number]) => name === signal || exitCode === 128 + number);
  return found?.[0] ?? null;
}

function kindOfEnd(exit: ReplicaExit): FailureKind {
  // argparse, and so vLLM, exits with 2 on an invalid command line.
  if (exit.exitCode === 2) return 'bad_arguments';
  // Shells, and the init of a container, exit with 127 if there is no such program, and with 126 if it may not run.
  if (exit.exitCode === 127) return 'program_not_found';
  if (exit.exitCode === 126) return 'not_executable';
  if (exit.exitCode === 0) return 'ended';
  return 'crashed';
}
