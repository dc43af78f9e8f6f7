import type { ModelAnswer } from '#edge/contract/models.ts';
import { html, type Html } from './html.ts';
import { copyable } from './elements.ts';

/** Programs that run unchanged, with this gateway's URL, a model of its catalog, and a key if there is one to show. */

export interface SnippetModel {
  readonly id: string;
  readonly task_type: ModelAnswer['task_type'];
}

export interface SnippetOptions {
  readonly origin: string;
  readonly model: SnippetModel;
  /** Null if the program reads HEADGATE_API_KEY. */
  readonly secret: string | null;
}

export interface Snippet {
  readonly id: string;
  readonly title: string;
  readonly text: string;
}

interface Call {
  readonly path: string;
  readonly body: object;
}

const hello = 'Hello!';

function callOf({ id: model, task_type }: SnippetModel): Call {
  switch (task_type) {
    case 'completion':
      return { path: '/v1/completions', body: { model, prompt: 'Hello' } };
    case 'embedding':
      return { path: '/v1/embeddings', body: { model, input: hello } };
    case 'rerank':
      return { path: '/v1/rerank', body: { model, query: hello, documents: ['Good morning!', 'Goodbye!'] } };
    case 'chat':
    case 'vision':
    case 'code':
      return { path: '/v1/chat/completions', body: { model, messages: [{ role: 'user', content: hello }] } };
  }
}

const soonest: readonly ModelAnswer['status'][] = ['ready', 'starting', 'cold', 'failed'];

/**
 * Chooses the model for programs: prefers models whose engine has not failed, then chat models, then models that are
 * ready soonest. Returns undefined if there is no model.
 */
export function sampleModel(list: readonly ModelAnswer[]): ModelAnswer | undefined {
  const rank = (model: ModelAnswer): number =>
    (model.status === 'failed' ? 100 : 0) + (isChat(model) ? 0 : 10) + soonest.indexOf(model.status);
  return list.toSorted((a, b) => rank(a) - rank(b))[0];
}

/** Quotes a text as one word of a shell. */
const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

export function curlSnippet({ origin, model, secret }: SnippetOptions): Snippet {
  const { path, body } = callOf(model);
  const key = secret === null ? '"Authorization: Bearer $HEADGATE_API_KEY"' : quoted(`Authorization: Bearer ${secret}`);
  const text = `curl ${origin}${path} \\
  -H ${key} \\
  -H 'Content-Type: application/json' \\
  -d ${quoted(JSON.stringify(body))}`;
  return { id: 'curl', title: 'curl', text };
}

export const isChat = ({ task_type }: SnippetModel): boolean => ['chat', 'vision', 'code'].includes(task_type);

function pythonSnippet({ origin, model, secret }: SnippetOptions): Snippet {
  const key = secret === null ? 'os.environ["HEADGATE_API_KEY"]' : JSON.stringify(secret);
  const head = `${secret === null ? 'import os\n' : ''}from openai import OpenAI

client = OpenAI(base_url="${origin}/v1", api_key=${key})
`;
  return { id: 'python', title: 'Python (openai)', text: head + pythonCall(model) };
}

function pythonCall(model: SnippetModel): string {
  const id = JSON.stringify(model.id);
  if (isChat(model)) {
    return `answer = client.chat.completions.create(
    model=${id},
    messages=[{"role": "user", "content": "${hello}"}],
)
print(answer.choices[0].message.content)`;
  }
  if (model.task_type === 'embedding') {
    return `answer = client.embeddings.create(model=${id}, input="${hello}")
print(len(answer.data[0].embedding))`;
  }
  if (model.task_type === 'completion') {
    return `answer = client.completions.create(model=${id}, prompt="Hello")
print(answer.choices[0].text)`;
  }
  return `answer = client.post("/rerank", cast_to=object, body=${JSON.stringify(callOf(model).body)})
print(answer)`;
}

function javascriptSnippet({ origin, model, secret }: SnippetOptions): Snippet {
  const key = secret === null ? 'process.env.HEADGATE_API_KEY' : JSON.stringify(secret);
  const head = `import OpenAI from 'openai';

const client = new OpenAI({ baseURL: '${origin}/v1', apiKey: ${key} });
`;
  return { id: 'javascript', title: 'JavaScript (openai)', text: head + javascriptCall(model) };
}

function javascriptCall(model: SnippetModel): string {
  const id = JSON.stringify(model.id);
  if (isChat(model)) {
    return `const answer = await client.chat.completions.create({
  model: ${id},
  messages: [{ role: 'user', content: '${hello}' }],
});
console.log(answer.choices[0].message.content);`;
  }
  if (model.task_type === 'embedding') {
    return `const answer = await client.embeddings.create({ model: ${id}, input: '${hello}' });
console.log(answer.data[0].embedding.length);`;
  }
  if (model.task_type === 'completion') {
    return `const answer = await client.completions.create({ model: ${id}, prompt: 'Hello' });
console.log(answer.choices[0].text);`;
  }
  return `const answer = await client.post('/rerank', { body: ${JSON.stringify(callOf(model).body)} });
console.log(answer);`;
}

function anthropicSnippet({ origin, model, secret }: SnippetOptions): Snippet {
  const key = secret === null ? 'os.environ["HEADGATE_API_KEY"]' : JSON.stringify(secret);
  const text = `${secret === null ? 'import os\n' : ''}from anthropic import Anthropic

# Before 2.14: auth_token in place of api_key.
client = Anthropic(base_url="${origin}", api_key=${key})
message = client.messages.create(
    model=${JSON.stringify(model.id)},
    max_tokens=1024,
    messages=[{"role": "user", "content": "${hello}"}],
)
print(message.content[0].text)`;
  return { id: 'anthropic', title: 'Python (anthropic, 2.14 or newer)', text };
}

/** Returns programs for libraries and agents that use chat models. */
function chatSnippets(options: SnippetOptions): Snippet[] {
  const {
    origin,
    model: { id },
    secret,
  } = options;
  const pythonKey = secret === null ? 'os.environ["HEADGATE_API_KEY"]' : JSON.stringify(secret);
  const pythonImport = secret === null ? 'import os\n' : '';
  const scriptKey = secret === null ? 'process.env.HEADGATE_API_KEY' : JSON.stringify(secret);
  const model = JSON.stringify(id);
  const config = {
    provider: {
      headgate: {
        npm: '@ai-sdk/openai-compatible',
        options: { baseURL: `${origin}/v1`, apiKey: secret ?? '{env:HEADGATE_API_KEY}' },
        models: { [id]: {} },
      },
    },
  };
  const pi = {
    providers: {
      headgate: {
        baseUrl: `${origin}/v1`,
        api: 'openai-completions',
        apiKey: secret ?? '$HEADGATE_API_KEY',
        models: [{ id }],
      },
    },
  };
  const environment = `export OPENAI_BASE_URL=${origin}/v1
export OPENAI_API_KEY=${secret === null ? '"$HEADGATE_API_KEY"' : quoted(secret)}
export OPENAI_MODEL=${quoted(id)}`;
  return [
    {
      id: 'langchain',
      title: 'LangChain',
      text: `${pythonImport}from langchain_openai import ChatOpenAI

chat = ChatOpenAI(base_url="${origin}/v1", api_key=${pythonKey}, model=${model})
print(chat.invoke("${hello}").content)`,
    },
    {
      id: 'llamaindex',
      title: 'LlamaIndex',
      text: `${pythonImport}from llama_index.llms.openai_like import OpenAILike

chat = OpenAILike(api_base="${origin}/v1", api_key=${pythonKey}, model=${model}, is_chat_model=True)
print(chat.complete("${hello}"))`,
    },
    anthropicSnippet(options),
    {
      id: 'ai-sdk',
      title: 'AI SDK',
      text: `import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText } from 'ai';

const headgate = createOpenAICompatible({
  name: 'headgate',
  baseURL: '${origin}/v1',
  apiKey: ${scriptKey},
});
const { text } = await generateText({ model: headgate(${model}), prompt: '${hello}' });
console.log(text);`,
    },
    { id: 'agents', title: 'Coding agents: opencode (opencode.json)', text: JSON.stringify(config, null, 2) },
    { id: 'agents-pi', title: 'Coding agents: pi (~/.pi/agent/models.json)', text: JSON.stringify(pi, null, 2) },
    { id: 'agents-qwen', title: 'Coding agents: Qwen Code and others that read the environment', text: environment },
  ];
}

export function snippetsOf(options: SnippetOptions): readonly Snippet[] {
  const first = [curlSnippet(options), pythonSnippet(options), javascriptSnippet(options)];
  return isChat(options.model) ? [...first, ...chatSnippets(options)] : first;
}

/** Renders the programs as collapsible sections, the first one open. Works without a script. */
export function snippetList(snippets: readonly Snippet[]): Html {
  return html`<div class="snippets">
    ${snippets.map(
      ({ id, title, text }, index) =>
        html`<details name="snippet" ${index === 0 ? html`open` : null}>
          <summary>${title}</summary>
          ${copyable(`snippet-${id}`, text)}
        </details>`,
    )}
  </div>`;
}
