import { splitTokens } from './tokenizer.ts';

/** Says in an answer's own words what the caller is talking to. */
const NOTICE = 'This text comes from a stand-in engine, not from a model.';

const SENTENCES = `The river rises before dawn and takes the old road past the mill.
A gate of oak and iron holds the upper water back.
When the keeper turns the wheel, the race fills and the turbines begin to hum.
Nobody in the valley remembers who laid the first stones of the weir.
In spring the meltwater is brown and quick, and carries branches from the hills.
By August a child can cross the ford without wetting a knee.
The ledger in the gatehouse counts every hour the sluice stood open.
Two herons share the shallow below the spillway and quarrel over the same fish.
What goes in at the intake comes out at the tail, less a little that the sun keeps.
Engineers measured the head twice and wrote both numbers down.
A bell rings when the level passes the red mark on the staff.
The water is patient, and the stone only looks as if it were.
On quiet nights the generators can be heard as far as the chapel.
Each turn of the wheel lifts the gate by the width of a hand.
The farmers downstream ask for more in June and for less in November.
Ice forms first along the north wall, where the current is slowest.
There is a map of the channels on the wall, drawn in three colours of ink.
After the flood they raised the crest by a metre and planted willows.
The spare key hangs behind the clock, and everybody knows it.
Sand settles where the water slows, so the basin is dredged every other year.
A trout needs cold water, clean gravel and very little advice.
The inspection takes a morning, and the report takes a week.
Somebody has painted a small blue boat on the door of the pump room.
If the flow drops below the minimum, the lowest gate opens by itself.
The canal was dug for barges and kept for swimmers.
From the footbridge one can see both the source of the light and its reflection.
Records show that the drought of that year lasted until the first of October.
The power it makes is enough for four villages and a bakery.
Moss grows on the side of the wall that the spray can reach.
The keeper's daughter learned to read from the gauge tables.
Half of the work is listening for a sound that has changed.
At noon the shadow of the tower touches the far bank.`.split('\n');

const OPENING = splitTokens(NOTICE);
const FOLLOWING = SENTENCES.map((sentence) => splitTokens(` ${sentence}`));
const THOUGHTS = [
  'The question seems clear enough.',
  ' First, what is asked for?',
  ' A stand-in cannot know, so it will say something about water instead.',
  ' Let me check that once more.',
  ' The tone should be calm and the sentences short.',
  ' That should do.',
].map((sentence) => splitTokens(sentence));

/** A small fast generator of random numbers (xorshift32); never 0. */
export function createRandom(seed: number): () => number {
  let state = seed >>> 0 || 0x9e37_79b9;
  return () => {
    state ^= state << 13;
    state >>>= 0;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state;
  };
}

/** An endless text, one token a call, and the number of tokens after which it would end by itself. */
interface Prose {
  next: () => string;
  naturalTokens: number;
}

function walk(first: readonly string[], pick: () => readonly string[]): () => string {
  let sentence = first;
  let at = 0;
  return () => {
    if (at >= sentence.length) {
      sentence = pick();
      at = 0;
    }
    const token = sentence[at] ?? '';
    at += 1;
    return token;
  };
}

/** Text for an answer. The same seed gives the same text. */
export function createAnswer(seed: number, continuation: boolean): Prose {
  const random = createRandom(seed);
  random();
  const lengths = 1 + (random() % 4);
  const planned: (readonly string[])[] = [];
  for (let index = 0; index < lengths; index += 1) planned.push(FOLLOWING[random() % FOLLOWING.length] ?? OPENING);
  const first = continuation ? [` ${OPENING[0] ?? ''}`, ...OPENING.slice(1)] : OPENING;
  const naturalTokens = planned.reduce((sum, sentence) => sum + sentence.length, first.length);
  const next = walk(first, () => planned.shift() ?? FOLLOWING[random() % FOLLOWING.length] ?? OPENING);
  return { next, naturalTokens };
}

/** Text for a thought. */
export function createThought(seed: number): Prose {
  const random = createRandom(seed ^ 0x7423_11ab);
  const first = THOUGHTS[0] ?? [];
  const second = THOUGHTS[1 + (random() % (THOUGHTS.length - 1))] ?? [];
  let given = false;
  const next = walk(first, () => {
    if (!given) {
      given = true;
      return second;
    }
    return THOUGHTS[1 + (random() % (THOUGHTS.length - 1))] ?? first;
  });
  return { next, naturalTokens: first.length + second.length };
}
