/** A stand-in engine as a container of its own, from the gateway's image. */
export function containerEngine(lines: readonly string[] = []): string {
  return `
version: 1
id: container-chat
name: Container Chat
hugging_face_id: headgate/container-chat
task_type: chat
context_length: 8192
pricing: {input_per_million: 0.10, cached_input_per_million: 0.05, output_per_million: 0.40}
driver: docker
kind: vllm
image: headgate:headgate-test
entrypoint: [node, engines/standin/standin.js, serve]
args: [headgate/container-chat, --max-model-len, "8192"]
idle_seconds: 3600
start_timeout_seconds: 60
${lines.join('\n')}
`;
}
