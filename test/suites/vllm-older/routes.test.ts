import '../vllm/routes.test.ts';
