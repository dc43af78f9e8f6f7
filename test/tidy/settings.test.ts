import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { ownSettings, parseConfig, settingsInCommon } from '#base/config/read-config.ts';
import { chaptersOf, listPages } from '#test/tidy/chapters.ts';

const root = new URL('../..', import.meta.url).pathname;
const read = (path: string): string => readFileSync(`${root}${path}`, 'utf8');
const configFiles = readdirSync(`${root}src/base/config`);
/**
 * Files that declare no settings of a gateway: `programs` has those of other programs, and the others read the values of
 * settings that are declared elsewhere.
 */
const otherFiles = ['common.ts', 'data-dir.ts', 'files.ts', 'programs.ts', 'read-config.ts', 'values.ts'];
/** Settings of a gateway only. */
const gatewaySettings = new Set(
  configFiles.filter((name) => !otherFiles.includes(name)).flatMap((name) => namesIn(read(`src/base/config/${name}`))),
);
const settingsPage = 'compose/settings.md';

/** Settings that a gateway, the door to the Docker socket or the command reads. */
const known = new Set(
  configFiles.flatMap((name) =>
    namesIn(read(`src/base/config/${name}`)).map((word) => (name === 'files.ts' ? `${word}_FILE` : word)),
  ),
);

/** Whole names of settings; what ends in an underscore is the beginning of some. */
function namesIn(text: string): string[] {
  return text.match(/\bHEADGATE_[A-Z0-9_]*[A-Z0-9]\b(?!_)/g) ?? [];
}

describe('settings', () => {
  it('in chapters and compose files exist in a gateway or a command', () => {
    const pages = ['README.md', ...chaptersOf(listPages(root))];
    for (const path of new Set([...pages, 'compose/compose.yaml', 'compose/env.example'])) {
      expect(
        [...new Set(namesIn(read(path)))].filter((name) => !known.has(name)),
        path,
      ).toEqual([]);
    }
    const rich = ['README.md', settingsPage, 'compose/README.md', 'compose/compose.yaml', 'compose/env.example'];
    for (const path of rich) expect(namesIn(read(path)).length, path).toBeGreaterThan(0);
  });

  it("are compared between gateways or listed as a gateway's own", () => {
    expect(gatewaySettings.size).toBeGreaterThan(50);
    const common = Object.keys(settingsInCommon(parseConfig({})));
    expect([...common, ...ownSettings].toSorted()).toEqual([...gatewaySettings].toSorted());
  });

  it('are in the settings chapter, and those of the Docker gate in the compose files', () => {
    expect(known.size).toBeGreaterThan(50);
    const named = new Set(namesIn(read(settingsPage)));
    const ofTheDoor = new Set(
      ['compose/compose.yaml', 'compose/swarm.md']
        .flatMap((path) => namesIn(read(path)))
        .filter((name) => name.startsWith('HEADGATE_DOCKER_')),
    );
    expect([...known].filter((name) => !named.has(name) && !ofTheDoor.has(name))).toEqual([]);
  });
});
