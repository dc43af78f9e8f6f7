import '../vllm/request-fields.test.ts';
