import type { Knobs } from './knobs.ts';
import { createThought } from './prose.ts';

/** Where a token's text goes: into the answer, the thought, or nowhere that a client sees. */
type Channel = 'content' | 'reasoning' | 'silent';

/** Material of an answer before it is cut to length. */
export interface Material {
  /** The next token's text; may be called indefinitely. */
  next: () => string;
  /** Tokens after which it ends by itself, end marker not counted. */
  naturalTokens: number;
  /** For a tool call: what each token adds to the call, as a `delta` object's JSON, or null for nothing. */
  toolDeltas: readonly (string | null)[] | null;
}

/** All that one choice will generate, decided before its first token. */
export interface Script {
  /** Tokens in all, the end marker included when it ends by `stop`. */
  length: number;
  end: 'stop' | 'length';
  /** Tokens of thought at the start. */
  thoughts: number;
  next: (index: number) => string;
  channel: (index: number) => Channel;
  /** The text that token `index` adds to a tool call. */
  toolDelta: (index: number) => string | null;
}

interface ScriptOptions {
  material: Material;
  knobs: Knobs;
  seed: number;
  /** Output tokens that fit. */
  room: number;
  minTokens: number;
  ignoreEos: boolean;
  /** True when the engine thinks first. */
  thinks: boolean;
}

/** Material of a fixed text that goes on with other material when more is asked for. */
export function fixedMaterial(tokens: readonly string[], rest: () => string): Material {
  let at = 0;
  const next = (): string => {
    at += 1;
    return at <= tokens.length ? (tokens[at - 1] ?? '') : rest();
  };
  return { next, naturalTokens: tokens.length, toolDeltas: null };
}

function thoughtOf(options: ScriptOptions, tokens: readonly string[] | null): { next: () => string; length: number } {
  if (!options.thinks) return { next: () => '', length: 0 };
  const prose = createThought(options.seed);
  const fixed = tokens === null ? null : fixedMaterial(tokens, prose.next);
  const length = options.knobs.reasoning_tokens ?? fixed?.naturalTokens ?? prose.naturalTokens;
  return { next: fixed?.next ?? prose.next, length };
}

function lengthOf(options: ScriptOptions, natural: number): { length: number; end: 'stop' | 'length' } {
  const { knobs, room } = options;
  if (knobs.output_tokens !== undefined) {
    const wanted = Math.max(1, Math.trunc(knobs.output_tokens));
    if (wanted <= room) return { length: wanted, end: knobs.finish ?? 'stop' };
  } else if (!options.ignoreEos) {
    const wanted = Math.max(natural + 1, options.minTokens);
    if (wanted <= room) return { length: wanted, end: knobs.finish ?? 'stop' };
  }
  return { length: room, end: 'length' };
}

/** Decides what a choice will generate. `thoughtTokens` are the fixed thought of a knob, or null. */
export function createScript(options: ScriptOptions, thoughtTokens: readonly string[] | null = null): Script {
  const { material } = options;
  const thought = thoughtOf(options, thoughtTokens);
  const marker = thought.length > 0 ? 1 : 0;
  const { length, end } = lengthOf(options, thought.length + marker + material.naturalTokens);
  const visible = end === 'stop' ? length - 1 : length;
  const thoughts = Math.min(thought.length, visible);
  // The marker that closes a thought is a token of its own, and nobody sees it.
  const closing = thoughts > 0 && visible > thoughts ? thoughts : -1;
  const first = closing >= 0 ? closing + 1 : thoughts;
  return {
    length,
    end,
    thoughts,
    next(index) {
      if (index >= visible || index === closing) return '';
      return index < thoughts ? thought.next() : material.next();
    },
    channel(index) {
      if (index < thoughts) return 'reasoning';
      if (index === closing || index >= visible) return closing === -1 && thoughts > 0 ? 'reasoning' : 'silent';
      return material.toolDeltas === null ? 'content' : 'silent';
    },
    toolDelta: (index) => (index < first || index >= visible ? null : (material.toolDeltas?.[index - first] ?? null)),
  };
}
