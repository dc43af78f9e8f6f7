import { describe, expect, it } from 'vitest';
import { checkEngineText } from '#core/catalog/catalog.ts';

/** Problems of a process with this command. */
function problems(command: readonly string[]): string[] {
  const fields = {
    version: 1,
    id: 'chat',
    name: 'Chat',
    hugging_face_id: 'acme/chat',
    task_type: 'chat',
    context_length: 4096,
    driver: 'process',
    command,
  };
  return checkEngineText(JSON.stringify(fields), 'chat.yaml').map(({ field, message }) => `${field}: ${message}`);
}

const words = (text: string): string[] => text.split(' ');
const run = (options: string): string[] => words(`docker run ${options} -p {port}:8000 acme/server:v1 --privileged`);

describe('a process that starts a container', () => {
  it.each([
    '--privileged',
    '--privileged=true',
    '--cap-add SYS_ADMIN',
    '--security-opt seccomp=unconfined',
    '--security-opt=apparmor=unconfined',
    '--pid=host',
    '--pid container:shop',
    '--ipc=host',
    '--uts host',
    '--userns=host',
    '--cgroupns host',
    '--net host',
    '--network=container:shop',
    '--volumes-from shop',
    '--device /dev/sda',
    '--device-cgroup-rule a',
    '--group-add docker',
    '--sysctl net.ipv4.ip_forward=1',
    '--runtime evil',
    '--use-api-socket',
    '--volume-driver evil',
    '--an-option-of-tomorrow x',
  ])('is rejected with the option %s', (options) => {
    expect(problems(run(options))).toEqual([expect.stringMatching(/^command: docker option --[a-z-]+/)]);
  });

  it.each([
    ['-v /var/run/docker.sock:/var/run/docker.sock', '/var/run/docker.sock is a socket'],
    ['-v/:/host', '/ gives control over the machine'],
    ['--volume=/etc/passwd:/x', '/etc/passwd is a system folder'],
    ['--mount type=bind,source=/run/docker.sock,target=/x', '/run/docker.sock is a socket'],
    ['--mount type=bind,src=/proc,dst=/x,readonly', '/proc gives control over the machine'],
    ['--mount type=volume,src=a,dst=/x,volume-opt=o=bind', 'volume options are not allowed'],
  ])('is rejected with the mount %s', (options, why) => {
    expect(problems(run(options))).toEqual([expect.stringContaining(`command: ${why}`)]);
  });

  it.each([
    ['sudo', ['sudo', '-n', ...run('--privileged')]],
    ['env', ['/usr/bin/env', 'A=1', ...run('--privileged')]],
    ['podman', words('podman --remote run --privileged -p {port}:80 acme/server:v1')],
    ['an option of Docker’s own', words('docker --context there -D run --privileged -p {port}:80 acme/server:v1')],
    ['the longer way to say it', words('/usr/bin/docker container run --privileged -p {port}:80 acme/server:v1')],
    ['a new container', words('docker create --privileged -p {port}:80 acme/server:v1')],
    ['a shell', ['/bin/sh', '-c', 'exec docker run --privileged -p {port}:80 "acme/server:v1"']],
  ])('is rejected with --privileged through %s', (_what, command) => {
    expect(problems(command)).toEqual([expect.stringContaining('docker option --privileged gives rights')]);
  });

  it.each([
    run('--rm --init --gpus all --name a -e A=1 --shm-size=16g --ulimit memlock=-1 --cap-drop ALL'),
    run('--runtime nvidia --ipc private --network models --security-opt no-new-privileges:true --restart no'),
    run('--device nvidia.com/gpu=all --device /dev/kfd --device=/dev/dri --group-add video'),
    run('-v hf-cache:/root/.cache/huggingface -v /srv/models:/models:ro -v /etc/ssl/certs:/etc/ssl/certs:ro'),
    run('--mount type=bind,src=/srv/models,dst=/models,readonly'),
    words('my-server --port {port} --privileged'),
    words('/opt/docker/serve run --privileged {port}'),
  ])('is accepted otherwise: %j', (...command) => {
    expect(problems(command)).toEqual([]);
  });
});
