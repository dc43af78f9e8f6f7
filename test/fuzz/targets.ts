import { engineFilesTarget } from './engine-files.ts';
import { httpTarget } from './http.ts';
import { jsonTarget } from './json.ts';

export const targets = { http: httpTarget, json: jsonTarget, 'engine-files': engineFilesTarget } as const;
