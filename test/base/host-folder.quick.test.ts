import { describe, expect, it } from 'vitest';
import { parseDockerGateConfig } from '#base/config/read-config.ts';
import { hostFolderProblem } from '#base/host-folder.ts';

describe('a host folder for a container', () => {
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
  ])('is rejected, also read-only: %s', (path, why) => {
    expect(hostFolderProblem(path, true)).toContain(why);
    expect(hostFolderProblem(path, false)).toContain(why);
  });

  it.each(['/etc/ssl/certs', '/usr/share/ollama/models', '/lib/firmware'])('is allowed read-only: %s', (path) => {
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
  ])('is allowed with write access: %s', (path) => {
    expect(hostFolderProblem(path, false)).toBeNull();
  });
});

describe('the allowed folders and volumes of the Docker gate', () => {
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
  ])('are rejected: %s', (binds, message) => {
    expect(() => read(binds)).toThrow(message);
  });

  it('are rejected when a folder contains the socket itself, and when a volume is a folder', () => {
    const settings = { HEADGATE_DOCKER_SOCKET: '/srv/docker/engine', HEADGATE_DOCKER_BINDS: '/srv/docker' };
    expect(() => parseDockerGateConfig(settings)).toThrow(
      'HEADGATE_DOCKER_BINDS: /srv/docker contains the Docker socket; list a folder without it.',
    );
    expect(() => read('', '/srv/models')).toThrow('HEADGATE_DOCKER_VOLUMES: must be names of volumes');
    expect(() => read('', 'a/b')).toThrow('HEADGATE_DOCKER_VOLUMES: must be names of volumes');
  });

  it('are read with their access mode', () => {
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
