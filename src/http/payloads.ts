/** Bytes on the wire: `payloadBase64` in place of `payload`, both ways. */
import type { JsonValue, TaskInput, TaskPayload } from '../queue/api.ts';

type WirePayload = { readonly payload?: JsonValue; readonly payloadBase64?: string };
type OnWire<T extends { readonly payload: TaskPayload }> = Omit<T, 'payload'> & WirePayload;

/** A call's tasks as the queue takes them. The contract has made sure that each has exactly one of the two. */
export function tasksFromWire(tasks: readonly OnWire<TaskInput>[]): readonly TaskInput[] {
  for (const task of tasks)
    if (task.payloadBase64 !== undefined) return tasks.map((one) => payloadFromWire<TaskInput>(one));
  return tasks as readonly TaskInput[];
}

/** The contract has made sure that it has exactly one of the two. */
export function payloadFromWire<T extends { readonly payload: TaskPayload }>(task: OnWire<T>): T {
  const { payloadBase64, ...rest } = task;
  if (payloadBase64 === undefined) return task as unknown as T;
  return { ...rest, payload: new Uint8Array(Buffer.from(payloadBase64, 'base64')) } as unknown as T;
}

/** A task, or a schedule, as it goes over the wire. */
export function taskToWire<T extends { readonly payload: TaskPayload }>(task: T): OnWire<T> {
  if (!(task.payload instanceof Uint8Array)) return task as OnWire<T>;
  const { payload, ...rest } = task as Omit<T, 'payload'> & { readonly payload: Uint8Array };
  const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength);
  return { ...(rest as Omit<T, 'payload'>), payloadBase64: bytes.toString('base64') };
}
