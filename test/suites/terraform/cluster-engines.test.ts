import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { freePort } from '#test/free-port.ts';
import { eventually } from '#test/inference/inference-gateway.ts';
import type { Place, RunGateway } from '#test/terraform/run-gateway.ts';
import { usePlace } from '#test/terraform/run-gateway.ts';

/** The built-in stack `vllm` with real Terraform and a stand-in for the program: the gateway serves what it starts. */

const newPlace = usePlace();
const root = new URL('../../../', import.meta.url).pathname;

/** Writes a program that takes the arguments of vLLM. */
function writeVllm(place: Place): string {
  const folder = place.folder();
  mkdirSync(folder);
  const program = join(folder, 'vllm');
  writeFileSync(program, `#!/bin/sh\ncd ${root} && exec ${process.execPath} engines/standin/standin.js "$@"\n`);
  chmodSync(program, 0o755);
  return program;
}

async function inputsFor(
  place: Place,
  more: object = {},
): Promise<Record<string, unknown> & { readonly port: number }> {
  const base = { model: 'org/tiny', model_id: 'tiny', input_price: 1, output_price: 2.5, context_length: 4096 };
  const port = await freePort();
  return { ...base, vllm_binary: writeVllm(place), folder: place.folder(), port, ...more };
}

async function newCluster(place: Place, gateway: RunGateway) {
  const organization = await gateway.made('/v1/organizations', { name: 'Organization' });
  return { organization, cluster: await gateway.cluster(place.server, organization.id) };
}

const declaration = (id: string): string =>
  `output "engine" {\n  value = { id = "${id}", task_type = "chat", context_length = 10, port = 1 }\n}\n`;

const ids = async (gateway: RunGateway): Promise<readonly string[]> =>
  (await gateway.ask('/v1/models')).body.data.map(({ id }: { readonly id: string }) => id);
const chat = (gateway: RunGateway, model = 'tiny') =>
  gateway.ask('/v1/chat/completions', {
    body: { model, messages: [{ role: 'user', content: 'Hello' }], max_tokens: 4 },
  });

it('serves the model of an applied stack, bills it, and removes it when the run is destroyed', async () => {
  const place = await newPlace();
  const gateway = await place.start();
  const { cluster } = await newCluster(place, gateway);
  const inputs = await inputsFor(place);
  const { id } = await gateway.apply('vllm', cluster.id, inputs);
  const run = await gateway.becomes(id, 'APPLIED');
  expect(run.outputs.engine.value).toMatchObject({ id: 'tiny', port: inputs.port, node: 'n0' });

  await eventually(async () => (await ids(gateway)).includes('tiny'));
  const answer = await eventually(async () => {
    const found = await chat(gateway);
    return found.status === 200 && found;
  });
  expect(answer.body).toMatchObject({ model: 'tiny', usage: { completion_tokens: 4 } });
  const { prompt_tokens: prompt } = answer.body.usage;
  const listed = await eventually(async () => {
    const { data } = (await gateway.ask('/v1/usage/requests')).body;
    return data.length > 0 && data[0];
  });
  expect(Number(listed.cost)).toBeCloseTo((prompt * 1 + 4 * 2.5) / 1e6, 12);

  // Only the gateway has the key, which is in no answer and no log.
  const direct = await fetch(`http://127.0.0.1:${inputs.port}/v1/models`);
  expect(direct.status).toBe(401);
  const { data: engines } = (await gateway.ask('/v1/admin/engines')).body;
  expect(engines).toEqual([expect.objectContaining({ id: 'tiny', file: `${id} (stack vllm)` })]);

  await gateway.kill();
  const next = await place.startHere({ home: gateway.home });
  // Listed from the first answer on.
  expect(await ids(next)).toContain('tiny');

  const { id: destroy } = await next.made(`/v1/runs/${id}/destroy`);
  await eventually(async () => !(await ids(next)).includes('tiny'));
  await next.becomes(destroy, 'DESTROYED');
  await expect(fetch(`http://127.0.0.1:${inputs.port}/health`)).rejects.toThrow('fetch failed');
  expect((await chat(next)).body.error.code).toBe('model_not_found');
});

it('serves only engines of runs that a platform administrator requested', async () => {
  const place = await newPlace();
  const gateway = await place.startHere();
  const { organization, cluster } = await newCluster(place, gateway);
  const { secret } = await gateway.made('/v1/keys', {
    name: 'of a member',
    organization_id: organization.id,
    scope: 'management',
  });
  const inputs = await inputsFor(place, { model_id: 'theirs' });
  const theirs = await gateway.ask('/v1/stacks/vllm/apply', { key: secret, body: { cluster_id: cluster.id, inputs } });
  expect(theirs.status).toBe(202);
  await gateway.becomes(theirs.body.id, 'APPLIED');
  const again = await gateway.apply('vllm', cluster.id, { ...inputs, model_id: 'ours' });
  await gateway.becomes(again.id, 'APPLIED');
  await eventually(async () => (await ids(gateway)).includes('ours'));
  expect(await ids(gateway)).toEqual(['ours']);
  await gateway.becomes((await gateway.made(`/v1/runs/${again.id}/destroy`)).id, 'DESTROYED');
});

it('applies no file that nobody has reloaded, and waits for none', async () => {
  const place = await newPlace();
  const gateway = await place.startHere();
  const { cluster } = await newCluster(place, gateway);
  await gateway.upload('declares', declaration('one'));
  const external = (id: string): string =>
    `{ version: 1, id: ${id}, name: ${id}, task_type: chat, context_length: 10, driver: external, url: http://127.0.0.1:1 }`;

  gateway.home.writeEngine('edited', external('edited'));
  const { id } = await gateway.apply('declares', cluster.id, {});
  await gateway.becomes(id, 'APPLIED');
  await eventually(async () => (await ids(gateway)).includes('one'));
  expect(await ids(gateway)).toEqual(['one']);

  gateway.home.writeEngine('edited', 'id: [');
  await gateway.made(`/v1/runs/${id}/destroy`);
  await eventually(async () => (await ids(gateway)).length === 0);
  expect((await gateway.ask('/v1/admin/engines')).body.files).toMatchObject({ refused: null, left_out: [] });

  gateway.home.writeEngine('edited', external('edited'));
  await gateway.made('/v1/admin/engines/reload');
  expect(await ids(gateway)).toEqual(['edited']);
});

it('leaves out an engine that cannot be served, and says why', async () => {
  const place = await newPlace();
  const gateway = await place.startHere();
  const { cluster } = await newCluster(place, gateway);
  const declare = async (name: string, value: string) => {
    await gateway.upload(name, `output "engine" {\n  value = ${value}\n}\n`);
    return (await gateway.becomes((await gateway.apply(name, cluster.id, {})).id, 'APPLIED')).id;
  };
  const fields = 'name = "One", task_type = "chat", context_length = 10, port = 1';
  const good = await declare('good', `{ id = "one", ${fields} }`);
  const same = await declare('same', `{ id = "one", ${fields} }`);
  const portless = await declare('portless', `{ id = "two", name = "Two", task_type = "chat", context_length = 10 }`);
  const nodeless = await declare('nodeless', `{ id = "three", ${fields}, node = "n9" }`);
  const mistaken = await declare('mistaken', `{ id = "four", ${fields}, context = 1 }`);
  const problems = await eventually(async () => {
    const { left_out: found } = (await gateway.ask('/v1/admin/engines')).body.files;
    return found.some((problem: string) => problem.includes(mistaken)) && found;
  });
  const text = problems.join('\n');
  expect(text).toContain(`${same} (stack same): id: "one" is already the id, name, alias or repository of ${good}`);
  expect(text).toContain(`${portless} (stack portless): the output engine must be an object with a port`);
  expect(text).toContain(`${nodeless} (stack nodeless): the cluster has no node "n9"`);
  expect(text).toContain(`${mistaken} (stack mistaken): context`);
  expect(await ids(gateway)).toEqual(['one']);
});
