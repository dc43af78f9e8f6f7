import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadEngineFiles } from '#core/catalog/catalog.ts';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'hg-image-kind-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('a container engine file without kind', () => {
  it.each([
    ['vllm/vllm-openai-cpu:v0.32.0', 'vllm'],
    [`registry.example:5000/mirror/vllm-openai@sha256:${'a'.repeat(64)}`, 'vllm'],
    [`vllm/vllm-openai:latest@sha256:${'a'.repeat(64)}`, 'vllm'],
    ['ghcr.io/ggml-org/llama.cpp:server-b4719', 'openai'],
  ])('has the kind of its image, in any registry: %s', (image, kind) => {
    const model = 'version: 1\nid: chat\nname: Chat\nhugging_face_id: Acme/Chat\ntask_type: chat\ncontext_length: 4096';
    writeFileSync(join(folder, 'chat.yaml'), `${model}\ndriver: docker\nimage: ${image}\nargs: [Acme/Chat]\n`);
    const result = loadEngineFiles(folder);
    expect(result.ok && result.engines[0]?.kind).toBe(kind);
  });
});
