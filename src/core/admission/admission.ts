/** Whether a request may run: the wallet's holds and the limits of its key, in this process or in Redis. */
export type { Admission, AdmitRefusal, AdmitRequest, AdmitResult, KeyRef, Settlement } from './contract.ts';
export { createMemoryAdmission, type MemoryAdmissionOptions } from './memory-admission.ts';
export { createRedisAdmission, type RedisAdmission, type RedisAdmissionOptions } from './redis-admission.ts';
