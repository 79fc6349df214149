// Keys of requests. One whose answer was lost is sent again with the same key, and gets the first one's answer: it is not done twice.
import { Code, ConnectError } from "@connectrpc/connect";
import { useRef } from "react";

export const newKey = () => `console-${crypto.randomUUID?.() ?? Math.random().toString(36).slice(2)}`;

/** Whether a request may have been done, and goes on perhaps, although it was answered by an error. */
const open = (error: unknown) => [Code.Unknown, Code.Unavailable, Code.Internal, Code.DeadlineExceeded, Code.Canceled].includes(ConnectError.from(error).code);

/** The key of what a form sends: the same one until that is answered, or something else is sent. */
export function useRequestKey() {
  const last = useRef({ request: "", key: "" });
  return {
    of(...request: unknown[]): string {
      const text = JSON.stringify(request);
      if (last.current.request !== text) last.current = { request: text, key: newKey() };
      return last.current.key;
    },
    /** error: how it was answered; none: well. */
    answered(error?: unknown): void {
      if (error === undefined || !open(error)) last.current = { request: "", key: "" };
    },
  };
}
