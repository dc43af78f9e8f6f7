import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findSocket, readMetric } from '#test/inference/inference-gateway.ts';
import { vllmFile } from '#test/inference/vllm-file.ts';
import type { EngineCounters } from './run.ts';

const preamble = 'You answer in the voice of a ferryman who has crossed the same river for forty years. '.repeat(12);

/** A chat template in ChatML that begins every conversation with 250 tokens, and shows tools as JSON. */
const template = [
  `<|im_start|>system\n${preamble}{% if tools %}Tools: {{ tools | tojson }}{% endif %}<|im_end|>\n`,
  '{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content or "" }}',
  '{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}<|im_end|>\n{% endfor %}',
  '{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}',
].join('');

/** Writes the template into a folder and returns the engine file of a vLLM that has tools, reasoning and this template. */
export function chatEngine(lines: readonly string[] = []): string {
  const path = join(mkdtempSync(join(tmpdir(), 'hg-template-')), 'preamble.jinja');
  writeFileSync(path, template);
  const tools = ['--enable-auto-tool-choice', '--tool-call-parser', 'hermes'];
  return vllmFile({ flags: [...tools, '--reasoning-parser', 'qwen3', '--chat-template', path], lines });
}

export function embeddingEngine(): string {
  const flags = ['--runner', 'pooling', '--convert', 'embed'];
  return vllmFile({ id: 'embed', taskType: 'embedding', maxSequences: 64, flags });
}

/** Reads the counters of engines that a gateway runs as processes. */
export async function readEngineCounters(dataDir: string, engines: readonly string[]): Promise<EngineCounters> {
  const sum = async (name: string): Promise<number> => {
    const found = await Promise.all(engines.map((engine) => readMetric(findSocket(dataDir, engine), name)));
    return found.reduce((total, value) => total + value, 0);
  };
  return {
    promptTokens: await sum('vllm:prompt_tokens_total'),
    outputTokens: await sum('vllm:generation_tokens_total'),
    running: (await sum('vllm:num_requests_running')) + (await sum('vllm:num_requests_waiting')),
  };
}
