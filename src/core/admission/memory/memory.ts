export { createMemoryAdmission, type MemoryAdmissionOptions } from './admission.ts';
