import { FairQueue } from '#base/queues/queues.ts';

/**
 * Memory for large JSON answers, which are kept until they are complete and recorded. An answer that grows large waits
 * for its turn, and its engine waits with it. One answer per organization is collected at a time, and none while the
 * organization's unread answers exceed its share. Over all organizations a few are collected, in an order that is fair
 * by bytes. Waiting answers are small, and an answer with a turn waits only for its engine: so every turn ends, and the
 * next one can always begin.
 */
export interface AnswerMemoryBudget {
  /**
   * @param bytes bytes that are already kept
   * @param onTurn called when the answer's turn comes, which may be at once
   */
  enter(organizationId: string, bytes: number, onTurn: () => void): AnswerPlace;
}

/** The place of one answer in the budget. */
export interface AnswerPlace {
  /** The turn is pending, and the answer may not grow. */
  readonly waits: boolean;
  /** Counts bytes that have arrived since. */
  add(bytes: number): void;
  /** The answer is complete: its turn ends, and its bytes are still kept. */
  collected(): void;
  /** The answer is no longer kept, or no longer waits. Later calls do nothing. */
  end(): void;
}

export interface AnswerMemoryBudgetOptions {
  /** Bytes of all bodies. While answers have half of them, only one answer is collected at a time. */
  readonly bytesMax: number;
}

const collectingMax = 4;
/**
 * An organization whose unread answers exceed a quarter of the bytes gets no turn: the share that a key has of bodies.
 */
const organizationsPerBudget = 4;

export function createAnswerMemoryBudget(options: AnswerMemoryBudgetOptions): AnswerMemoryBudget {
  return new MemoryBudget(options);
}

/** The answers of one organization. */
interface Line {
  readonly waiting: Place[];
  /** The first waiting answer, while it is in the order of all organizations. */
  offered: Place | null;
  collecting: boolean;
  /** Bytes of collected answers that are not read yet. */
  unread: number;
}

class MemoryBudget implements AnswerMemoryBudget {
  readonly #bytesMax: number;
  readonly #unreadMax: number;
  readonly #lines = new Map<string, Line>();
  readonly #order = new FairQueue<Place>();
  #collecting = 0;
  /** Bytes of all answers that have or had a turn, until they are read. */
  #bytes = 0;

  constructor({ bytesMax }: AnswerMemoryBudgetOptions) {
    this.#bytesMax = bytesMax / 2;
    this.#unreadMax = bytesMax / organizationsPerBudget;
  }

  enter(organizationId: string, bytes: number, onTurn: () => void): Place {
    const line = this.#lines.get(organizationId) ?? { waiting: [], offered: null, collecting: false, unread: 0 };
    this.#lines.set(organizationId, line);
    const place = new Place(this, { organizationId, bytes, onTurn });
    line.waiting.push(place);
    this.#settle(organizationId, line);
    return place;
  }

  grew(bytes: number): void {
    this.#bytes += bytes;
  }

  /** Ends a turn. The answer's bytes count as unread from now on. */
  collected({ organizationId, bytes, expected }: Place): void {
    const line = this.#lineOf(organizationId);
    line.collecting = false;
    line.unread += bytes;
    this.#collecting -= 1;
    this.#order.correct(organizationId, bytes - expected);
    this.#settle(organizationId, line);
  }

  read({ organizationId, bytes }: Place): void {
    const line = this.#lineOf(organizationId);
    line.unread -= bytes;
    this.#bytes -= bytes;
    this.#settle(organizationId, line);
  }

  leave(place: Place): void {
    const { organizationId } = place;
    const line = this.#lineOf(organizationId);
    line.waiting.splice(line.waiting.indexOf(place), 1);
    if (line.offered === place) {
      this.#order.remove(organizationId, place);
      line.offered = null;
    }
    this.#settle(organizationId, line);
  }

  #lineOf(organizationId: string): Line {
    const line = this.#lines.get(organizationId);
    if (line === undefined) throw new Error('an answer is counted, but its organization has no count');
    return line;
  }

  /** Adds the organization's next answer to the order, and grants free turns. Called after every change. */
  #settle(organizationId: string, line: Line): void {
    const [first] = line.waiting;
    const mayCollect = !line.collecting && line.unread <= this.#unreadMax;
    if (first !== undefined && line.offered === null && mayCollect) {
      line.offered = first;
      this.#order.add(organizationId, first.expected, first);
    }
    if (first === undefined && !line.collecting && line.unread === 0) this.#lines.delete(organizationId);
    while (this.#mayCollectMore()) {
      const next = this.#order.take();
      if (next === null) return;
      this.#grant(next);
    }
  }

  #mayCollectMore(): boolean {
    return this.#collecting === 0 || (this.#collecting < collectingMax && this.#bytes < this.#bytesMax);
  }

  #grant(place: Place): void {
    const line = this.#lineOf(place.organizationId);
    line.waiting.shift();
    line.offered = null;
    line.collecting = true;
    this.#collecting += 1;
    this.#bytes += place.bytes;
    place.grant();
  }
}

interface PlaceParts {
  readonly organizationId: string;
  readonly bytes: number;
  readonly onTurn: () => void;
}

class Place implements AnswerPlace {
  readonly organizationId: string;
  /** Bytes when the answer entered the budget. */
  readonly expected: number;
  bytes: number;
  readonly #budget: MemoryBudget;
  readonly #onTurn: () => void;
  #state: 'waiting' | 'collecting' | 'collected' | 'ended' = 'waiting';

  constructor(budget: MemoryBudget, { organizationId, bytes, onTurn }: PlaceParts) {
    this.#budget = budget;
    this.organizationId = organizationId;
    this.bytes = bytes;
    this.expected = bytes;
    this.#onTurn = onTurn;
  }

  get waits(): boolean {
    return this.#state === 'waiting';
  }

  grant(): void {
    this.#state = 'collecting';
    this.#onTurn();
  }

  add(bytes: number): void {
    this.bytes += bytes;
    if (this.#state === 'collecting') this.#budget.grew(bytes);
  }

  collected(): void {
    if (this.#state === 'waiting') {
      // The answer ended with the bytes that made it wait.
      this.end();
    } else if (this.#state === 'collecting') {
      this.#state = 'collected';
      this.#budget.collected(this);
    }
  }

  end(): void {
    const before = this.#state;
    if (before === 'ended') return;
    this.#state = 'ended';
    if (before === 'waiting') {
      this.#budget.leave(this);
      return;
    }
    if (before === 'collecting') this.#budget.collected(this);
    this.#budget.read(this);
  }
}
