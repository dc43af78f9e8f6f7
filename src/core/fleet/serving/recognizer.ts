import type { Clock } from '#base/clock.ts';
import { type EngineIdentity, identifyEngine } from './engine-identity.ts';
import type { ReplicaSlot } from './replica-set.ts';

/** Asks the replicas that this gateway sends requests to what they are. */
export interface Recognizer {
  /** Reschedules all questions, after a change of the replicas. */
  kick(): void;
  close(): void;
}

export interface RecognizerOptions {
  readonly clock: Clock;
  readonly slots: () => Iterable<ReplicaSlot>;
  /** Called with null if the replica did not answer. */
  readonly onIdentity: (slot: ReplicaSlot, identity: EngineIdentity | null) => void;
}

/** Delay before a replica that did not answer is asked again. */
const retryMs = 5000;
/** An external server may be replaced by another version at any time, and a managed replica never. */
const againMs = 600_000;

interface Question {
  atMs: number;
  asking: boolean;
  /** True if the replica was ill since it was asked. */
  wasIll: boolean;
}

export function createRecognizer({ clock, slots, onIdentity }: RecognizerOptions): Recognizer {
  const questions = new Map<string, Question>();
  let timer: NodeJS.Timeout | undefined;
  let closed = false;

  function questionOf(slot: ReplicaSlot): Question {
    const { replica, identity, healthy } = slot;
    const known = questions.get(replica.id);
    const question = known ?? { atMs: -Infinity, asking: false, wasIll: false };
    questions.set(replica.id, question);
    if (identity === undefined) question.atMs = -Infinity;
    if (healthy === false) question.wasIll = true;
    else if (question.wasIll && healthy === true) Object.assign(question, { wasIll: false, atMs: -Infinity });
    return question;
  }

  async function ask(slot: ReplicaSlot, question: Question): Promise<void> {
    const { replica, observed } = slot;
    const { specHash } = observed;
    question.asking = true;
    const identity = await identifyEngine(replica);
    if (closed) return;
    const isChanging = observed.health === 'watched';
    question.asking = false;
    question.atMs = clock.monotonicMs() + (identity === null ? retryMs : isChanging ? againMs : Infinity);
    // An external replica keeps its id when its address changes; the new address is asked next.
    if (slot.observed.specHash === specHash) onIdentity(slot, identity);
    kick();
  }

  function kick(): void {
    if (closed) return;
    const nowMs = clock.monotonicMs();
    const seen = new Set<string>();
    let nextMs = Infinity;
    for (const slot of slots()) {
      if (slot.published !== 'ready' || slot.observed.state !== 'running') continue;
      seen.add(slot.replica.id);
      const question = questionOf(slot);
      if (question.asking) continue;
      if (question.atMs <= nowMs) void ask(slot, question);
      else nextMs = Math.min(nextMs, question.atMs);
    }
    for (const [id, { asking }] of questions) if (!seen.has(id) && !asking) questions.delete(id);
    clearTimeout(timer);
    if (nextMs !== Infinity) timer = setTimeout(kick, Math.max(1, nextMs - nowMs));
  }

  return {
    kick,
    close() {
      closed = true;
      clearTimeout(timer);
    },
  };
}
