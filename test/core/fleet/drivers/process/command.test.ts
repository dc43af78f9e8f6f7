import { describe, expect, it } from 'vitest';
import {
  launchCommand,
  launchEnvironment,
  listensOnSocket,
  processSpecHash,
} from '#core/fleet/drivers/process/command.ts';
import { engineDefinition } from '#test/fleet/test-fleet.ts';

const vllm = (command: string[], env: Record<string, string> = {}) =>
  engineDefinition({ command, env }, { kind: 'vllm', id: 'small', name: 'Small Chat', huggingFaceId: 'acme/small' });
const socket = { socketPath: '/run/x.sock' };
const context = { gatewayEnv: {}, owner: 'o', gpuIds: [] };

describe('the vLLM command', () => {
  it('adds a private socket, all names with the id first, and usage in every frame', () => {
    const added = launchCommand(vllm(['vllm', 'serve', 'm']), socket).slice(3);
    expect(added.slice(0, 4)).toEqual(['--served-model-name', 'small', 'Small Chat', 'acme/small']);
    expect(added.slice(4, 6)).toEqual(['--max-model-len', '1024']);
    expect(added.slice(6, 8)).toEqual(['--enable-force-include-usage', '--enable-prompt-tokens-details']);
    expect(added.slice(8)).toEqual(['--uds', '/run/x.sock']);
  });

  it('does not change what the engine file sets or forbids', () => {
    const given = [
      'vllm',
      'serve',
      'm',
      '--served_model_name=small',
      '--max-model-len=2048',
      '--no-enable-prompt-tokens-details',
      '--uds={socket}',
    ];
    const filled = given.map((argument) => argument.replace('{socket}', '/run/x.sock'));
    expect(launchCommand(vllm(given), socket)).toEqual([...filled, '--enable-force-include-usage']);
  });

  it('listens on 127.0.0.1 without development routes when the engine file uses a port', () => {
    const definition = vllm(['vllm', 'serve', 'm', '--port', '{port}']);
    expect(listensOnSocket(definition)).toBe(false);
    const command = launchCommand(definition, { port: 4711 });
    expect(command.slice(3, 5)).toEqual(['--port', '4711']);
    expect(command.slice(-2)).toEqual(['--host', '127.0.0.1']);
    expect(launchEnvironment(definition, context)).toMatchObject({
      ok: true,
      env: expect.not.objectContaining({ VLLM_SERVER_DEV_MODE: '1' }),
    });
  });

  it('enables development routes on a socket unless the engine file sets VLLM_SERVER_DEV_MODE', () => {
    expect(launchEnvironment(vllm(['vllm']), context)).toMatchObject({ env: { VLLM_SERVER_DEV_MODE: '1' } });
    expect(launchEnvironment(vllm(['vllm'], { VLLM_SERVER_DEV_MODE: '0' }), context)).toMatchObject({
      env: { VLLM_SERVER_DEV_MODE: '0' },
    });
  });
});

describe('the media domains of a vLLM process', () => {
  it('come from media_domains in the engine file, and redirects are off', () => {
    const fetching = { ...vllm(['vllm', 'serve', 'm']), mediaDomains: ['a.example.org', 'b.example.org'] };
    const command = launchCommand(fetching, socket);
    const flag = command.indexOf('--allowed-media-domains');
    expect(command.slice(flag, flag + 4)).toEqual([
      '--allowed-media-domains',
      'a.example.org',
      'b.example.org',
      '--uds',
    ]);
    expect(launchCommand(vllm(['vllm', 'serve', 'm']), socket)).not.toContain('--allowed-media-domains');
    const inherited = { VLLM_MEDIA_URL_ALLOW_REDIRECTS: '1' };
    for (const definition of [fetching, vllm(['vllm'])]) {
      expect(launchEnvironment(definition, { ...context, gatewayEnv: inherited })).toMatchObject({
        env: { VLLM_MEDIA_URL_ALLOW_REDIRECTS: '0' },
      });
    }
  });

  it("are not added when the engine file's command sets its own", () => {
    const own = ['vllm', 'serve', 'm', '--allowed-media-domains', 'c.example.org'];
    const definition = { ...vllm(own, { VLLM_MEDIA_URL_ALLOW_REDIRECTS: '1' }), mediaDomains: ['a.example.org'] };
    expect(launchCommand(definition, socket)).not.toContain('a.example.org');
    expect(launchEnvironment(definition, context)).toMatchObject({ env: { VLLM_MEDIA_URL_ALLOW_REDIRECTS: '1' } });
  });
});

describe('a program that is not vLLM', () => {
  it('gets its own GPUs in CUDA_VISIBLE_DEVICES and unbuffered output', () => {
    const definition = engineDefinition();
    const gpuIds = ['GPU-1', 'GPU-2'];
    expect(launchEnvironment(definition, { ...context, gpuIds })).toMatchObject({
      env: { CUDA_VISIBLE_DEVICES: 'GPU-1,GPU-2', PYTHONUNBUFFERED: '1' },
    });
    const inherited = { ...context, gatewayEnv: { CUDA_VISIBLE_DEVICES: '3' } };
    expect(launchEnvironment(definition, inherited)).toMatchObject({ env: { CUDA_VISIBLE_DEVICES: '3' } });
  });

  it('gets no added arguments', () => {
    const definition = engineDefinition({ command: ['serve-it', '--listen=unix:{socket}'] });
    expect(launchCommand({ ...definition, mediaDomains: ['a.example.org'] }, socket)).toEqual([
      'serve-it',
      '--listen=unix:/run/x.sock',
    ]);
    const env = { HEADGATE_ENGINE_OWNER: context.owner, PYTHONUNBUFFERED: '1' };
    expect(launchEnvironment(definition, context)).toEqual({ ok: true, env });
  });
});

describe('the spec hash of a process', () => {
  const base = vllm(['vllm', 'serve', 'm'], { TOKEN: '${T}' });
  it('changes with program, arguments, names and the values of referenced variables', () => {
    const hashes = [
      processSpecHash(base, { T: '1' }),
      processSpecHash(base, { T: '2' }),
      processSpecHash({ ...base, name: 'Other' }, { T: '1' }),
      processSpecHash(vllm(['/opt/vllm', 'serve', 'm'], { TOKEN: '${T}' }), { T: '1' }),
      processSpecHash(vllm(['vllm', 'serve', 'n'], { TOKEN: '${T}' }), { T: '1' }),
    ];
    expect(new Set(hashes).size).toBe(hashes.length);
  });
  it('does not change with prices, times and other variables of the gateway', () => {
    const { driver } = base;
    if (driver.type !== 'process') throw new Error('a process was expected');
    const same = { ...base, pricing: null, driver: { ...driver, idleMs: 1 } };
    expect(processSpecHash(same, { T: '1', PATH: '/x' })).toBe(processSpecHash(base, { T: '1' }));
  });

  it('changes with context_length unless the command sets --max-model-len', () => {
    for (const [definition, isSame] of [
      [vllm(['vllm', 'serve', 'm']), false],
      [vllm(['vllm', 'serve', 'm', '--max-model-len=9K']), true],
    ] as const) {
      const other = { ...definition, contextLength: 1 };
      expect(processSpecHash(other, {}) === processSpecHash(definition, {})).toBe(isSame);
    }
  });
});
