import { describe, expect, it } from 'vitest';
import { checkEngineText, decodeDefinition, encodeDefinition, formatEngineFileProblem } from '#core/catalog/catalog.ts';
import { toDefinition } from '#core/catalog/files/to-definition.ts';
import { engineFileSchema } from '#core/catalog/files/engine-file-schema.ts';
import { engineDefinition } from '#test/fleet/test-fleet.ts';

const head = {
  version: 1,
  id: 'a',
  name: 'A',
  hugging_face_id: 'acme/a',
  task_type: 'chat',
  context_length: 4096,
  driver: 'process',
  command: ['serve-it', '{socket}'],
};

function problemsOf(entry: object, over: object = {}): string[] {
  const text = JSON.stringify({ ...head, ...over, schedule: [entry] });
  return checkEngineText(text, 'a.yaml').map(formatEngineFileProblem);
}

const morning = { cron: '0 8 * * 1-5', timezone: 'Europe/Berlin' };

describe('the schedule of an engine file', () => {
  it('takes fields that an entry leaves out from replicas', () => {
    const schedule = [
      { ...morning, min_replicas: 2, max_replicas: 3 },
      { ...morning, cron: '0 12 * * *', max_replicas: 5 },
      { ...morning, cron: '0 20 * * *' },
      { ...morning, cron: '0 22 * * *', max_replicas: 0 },
    ];
    const file = engineFileSchema.parse({ ...head, replicas: { min: 1, max: 4 }, schedule });
    const { driver } = toDefinition('a.yaml', file, null);
    const bounds = 'schedule' in driver ? driver.schedule.map(({ min, max }) => [min, max]) : [];
    expect(bounds).toEqual([
      [2, 3],
      [1, 5],
      [1, 4],
      [0, 0],
    ]);
  });

  it('is kept with the stored spec of an engine', () => {
    const schedule = [{ cron: '0 8 * * *', timezone: 'Europe/Berlin', min: 1, max: 2 }];
    const definition = engineDefinition({ schedule });
    expect(decodeDefinition(encodeDefinition(definition))).toEqual(definition);
  });

  it.each([
    [{ cron: '0 8 * *' }, 'schedule[0].cron: expected a cron expression with five fields, such as "0 8 * * 1-5"'],
    [{ cron: '0 0 8 * * *' }, 'expected a cron expression with five fields'],
    [{ cron: '@daily' }, 'expected a cron expression with five fields'],
    [{ cron: '? 8 * * *' }, 'expected a cron expression with five fields'],
    [{ cron: '0 25 * * *' }, 'such as "0 8 * * 1-5" (Invalid value for hour: 25)'],
    [{ cron: '0 8 30 2 *' }, 'schedule[0].cron: this time never comes'],
    [
      { timezone: 'Europe/Bonn' },
      'schedule[0].timezone: expected a time zone of the IANA database, such as Europe/Berlin',
    ],
    [{ timezone: '+02:00' }, 'schedule[0].timezone: expected a time zone of the IANA database'],
    [{ timezone: undefined }, 'schedule[0].timezone: this field is missing'],
    [{ min_replicas: -1 }, 'schedule[0].min_replicas: must be at least 0'],
    [{ max_replicas: 1001 }, 'schedule[0].max_replicas: must be at most 1000'],
    [{ replicas: 2 }, 'schedule[0].replicas: unknown field'],
    [
      { min_replicas: 3, max_replicas: 2 },
      'schedule[0].min_replicas: the minimum 3 is more than max_replicas, which is 2; set min_replicas and max_replicas',
    ],
    [{ min_replicas: 3 }, 'schedule[0].min_replicas: the minimum 3 is more than replicas.max, which is 1'],
  ])('is rejected with %o', (over, problem) => {
    expect(problemsOf({ ...morning, ...over })).toEqual([expect.stringContaining(problem)]);
  });

  it('is rejected where replicas.min is more than max_replicas', () => {
    const problems = problemsOf({ ...morning, max_replicas: 1 }, { replicas: { min: 2 } });
    expect(problems).toEqual([
      expect.stringContaining('schedule[0].max_replicas: the minimum 2 of replicas.min is more than max_replicas'),
    ]);
  });

  it('is rejected with two entries of the same times', () => {
    const text = JSON.stringify({ ...head, schedule: [morning, { ...morning, max_replicas: 0 }] });
    expect(checkEngineText(text, 'a.yaml').map(formatEngineFileProblem)).toEqual([
      expect.stringContaining('schedule[1].cron: the entry 1 has the same times; remove one of them'),
    ]);
  });

  it('is rejected for an external engine', () => {
    const { command: _, ...rest } = head;
    const text = JSON.stringify({ ...rest, driver: 'external', url: 'http://127.0.0.1:1', schedule: [morning] });
    expect(checkEngineText(text, 'a.yaml').map(formatEngineFileProblem)).toEqual([
      expect.stringContaining('schedule: unknown field'),
    ]);
  });
});
