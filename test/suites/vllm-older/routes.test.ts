import { describeRoutes } from '../vllm/routes.ts';

describeRoutes();
