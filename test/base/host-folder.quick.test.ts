import { describe, expect, it } from 'vitest';
import { parseDockerGateConfig } from '#base/config/read-config.ts';
import { hostFolderProblem } from '#base/host-folder.ts';

describe('a folder of the machine for a container', () => {
  it.each([
    ['/', 'gives control over the machine'],
    ['/var/run/docker.sock', 'is a socket'],
    ['/srv/engine/docker.sock', 'is a socket'],
    ['/run/podman/podman.socket', 'is a socket'],
    ['/run/docker', 'gives control over the machine'],
    ['/var/run', 'gives control over the machine'],
    ['/var/run/', 'gives control over the machine'],
    ['/run', 'gives control over the machine'],
    ['/var', 'gives control over the machine'],
    ['/var/lib', 'gives control over the machine'],
    ['/var/lib/docker/volumes/shop/_data', 'gives control over the machine'],
    ['/proc/1/root', 'gives control over the machine'],
    ['/sys/fs/cgroup', 'gives control over the machine'],
    ['/dev', 'gives control over the machine'],
    ['/dev/sda', 'gives control over the machine'],
    ['/boot', 'gives control over the machine'],
    ['/etc', 'contains more than an engine needs'],
    ['/usr', 'contains more than an engine needs'],
    ['/root', 'contains more than an engine needs'],
    ['/home', 'contains more than an engine needs'],
    ['/home/ada', 'contains more than an engine needs'],
    ['srv/models', 'expected an absolute path'],
    ['/srv/../etc', 'expected an absolute path'],
    ['/srv/./models', 'expected an absolute path'],
    ['//srv/models', 'expected an absolute path'],
    ['/srv//models', 'expected an absolute path'],
  ])('is refused, also to read: %s', (path, why) => {
    expect(hostFolderProblem(path, true)).toContain(why);
    expect(hostFolderProblem(path, false)).toContain(why);
  });

  it.each(['/etc/ssl/certs', '/usr/share/ollama/models', '/lib/firmware'])('may be read, not written: %s', (path) => {
    expect(hostFolderProblem(path, false)).toContain('add :ro');
    expect(hostFolderProblem(path, true)).toBeNull();
  });

  it.each([
    '/srv/models',
    '/srv/models/',
    '/data',
    '/running/models',
    '/root/.cache/huggingface',
    '/home/ada/models',
    '/var/lib/models',
    '/dev/shm',
    '/run/media/ada/disk',
    '/mnt/disk.socks',
  ])('may be written: %s', (path) => {
    expect(hostFolderProblem(path, false)).toBeNull();
  });
});

describe('the folders and volumes that the door to the Docker socket lets through', () => {
  const read = (binds: string, volumes = '') =>
    parseDockerGateConfig({ HEADGATE_DOCKER_BINDS: binds, HEADGATE_DOCKER_VOLUMES: volumes });

  it.each([
    ['/srv/models,/srv/models/deep', 'HEADGATE_DOCKER_BINDS: /srv/models/deep is inside /srv/models'],
    ['/srv/models/deep:ro,/srv/models', 'HEADGATE_DOCKER_BINDS: /srv/models/deep is inside /srv/models'],
    ['/srv/models,/srv/models:ro', 'HEADGATE_DOCKER_BINDS: /srv/models is listed with and without :ro'],
    ['/srv/models:rw', 'HEADGATE_DOCKER_BINDS: must be absolute paths'],
    ['hf-cache', 'HEADGATE_DOCKER_BINDS: must be absolute paths'],
    ['/srv/../etc', 'HEADGATE_DOCKER_BINDS: expected an absolute path'],
    ['/var/run', 'HEADGATE_DOCKER_BINDS: /var/run gives control over the machine'],
    ['/etc/ssl', 'HEADGATE_DOCKER_BINDS: /etc/ssl is a system folder'],
  ])('are refused: %s', (binds, message) => {
    expect(() => read(binds)).toThrow(message);
  });

  it('are refused where a folder holds the socket itself, and where a volume is a folder', () => {
    const settings = { HEADGATE_DOCKER_SOCKET: '/srv/docker/engine', HEADGATE_DOCKER_BINDS: '/srv/docker' };
    expect(() => parseDockerGateConfig(settings)).toThrow(
      'HEADGATE_DOCKER_BINDS: /srv/docker contains the Docker socket; list a folder without it.',
    );
    expect(() => read('', '/srv/models')).toThrow('HEADGATE_DOCKER_VOLUMES: must be names of volumes');
    expect(() => read('', 'a/b')).toThrow('HEADGATE_DOCKER_VOLUMES: must be names of volumes');
  });

  it('are read with what may be done with them', () => {
    expect(read(' /srv/models/:ro , /srv/models-2', 'hf-cache,weights:ro')).toMatchObject({
      binds: [
        { source: '/srv/models', isReadOnly: true },
        { source: '/srv/models-2', isReadOnly: false },
      ],
      volumes: [
        { source: 'hf-cache', isReadOnly: false },
        { source: 'weights', isReadOnly: true },
      ],
    });
    expect(read('')).toMatchObject({ binds: [], volumes: [] });
  });
});
