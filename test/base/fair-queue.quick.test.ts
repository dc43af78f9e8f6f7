import { describe, expect, it } from 'vitest';
import { FairQueue } from '#base/queues/fair-queue.ts';
import { parseLoad } from '#core/fleet/serving/engine-load.ts';

function takeAll(queue: FairQueue<string>): string[] {
  const taken: string[] = [];
  for (let item = queue.take(); item !== null; item = queue.take()) taken.push(item);
  return taken;
}

describe('the fair queue', () => {
  it('returns null when it is empty', () => {
    const queue = new FairQueue<string>();
    expect(queue.take()).toBeNull();
    queue.add('a', 1, 'a1');
    queue.remove('a', 'a1');
    queue.remove('a', 'a1');
    queue.remove('b', 'b1');
    expect([queue.size, queue.take()]).toEqual([0, null]);
  });

  it('alternates between keys, for any number of items of one key', () => {
    const queue = new FairQueue<string>();
    for (const item of ['a1', 'a2', 'a3', 'a4']) queue.add('a', 10, item);
    for (const item of ['b1', 'b2']) queue.add('b', 10, item);
    expect(takeAll(queue)).toEqual(['a1', 'b1', 'a2', 'b2', 'a3', 'a4']);
  });

  it('gives a key with small items more of them', () => {
    const queue = new FairQueue<string>();
    for (const item of ['big1', 'big2']) queue.add('a', 30, item);
    for (const item of ['1', '2', '3', '4', '5', '6']) queue.add('b', 10, item);
    expect(takeAll(queue)).toEqual(['big1', '1', '2', '3', 'big2', '4', '5', '6']);
  });

  it('corrects costs to what was really used', () => {
    const queue = new FairQueue<string>();
    queue.add('a', 10, 'a1');
    queue.add('b', 10, 'b1');
    expect([queue.take(), queue.take()]).toEqual(['a1', 'b1']);
    for (const item of ['a2', 'a3']) queue.add('a', 10, item);
    for (const item of ['b2', 'b3']) queue.add('b', 10, item);
    // The first thing of a cost three times as much as was thought.
    queue.correct('a', 20);
    queue.correct('b', 0);
    expect(takeAll(queue)).toEqual(['b2', 'b3', 'a2', 'a3']);
  });

  it('lets no key save up credit while it is idle', () => {
    const queue = new FairQueue<string>();
    for (let count = 0; count < 100; count += 1) {
      queue.add('a', 10, 'a');
      queue.add('b', 10, 'b');
    }
    for (let count = 0; count < 100; count += 1) {
      queue.take();
      queue.take();
    }
    for (const key of ['a', 'b']) for (let count = 0; count < 100; count += 1) queue.correct(key, 0);
    for (let count = 0; count < 4; count += 1) queue.add('a', 10, 'a');
    for (let count = 0; count < 4; count += 1) queue.add('late', 10, 'late');
    expect(
      takeAll(queue)
        .slice(0, 4)
        .filter((item) => item === 'late').length,
    ).toBeLessThanOrEqual(3);
  });
});

describe('the load report of an engine', () => {
  it('is the sum of its request gauges only', () => {
    const text = [
      '# TYPE vllm:num_requests_waiting gauge',
      'vllm:num_requests_waiting{engine="0",model_name="m"} 3.0',
      'vllm:num_requests_waiting{engine="1",model_name="m"} 4.0',
      'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 100.0',
      'vllm:num_requests_running{engine="0",model_name="m"} 200.0',
      'vllm:num_requests_running{engine="1",model_name="m"} 1.0',
    ].join('\n');
    expect(parseLoad(text)).toEqual({ running: 201, waiting: 7 });
    expect(parseLoad(text.replaceAll('.0', ''))).toEqual({ running: 201, waiting: 7 });
    expect(parseLoad('vllm:num_requests_waiting 0.0\n')).toEqual({ running: 0, waiting: 0 });
    expect(parseLoad('something else')).toBe('none');
    expect(parseLoad('')).toBe('none');
  });
});
