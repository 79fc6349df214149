// Idempotency keys. A request whose response was lost is sent again with the same key, so it is not executed twice.
import { Code, ConnectError } from "@connectrpc/connect";
import { useRef } from "react";

export const newKey = () => `console-${crypto.randomUUID?.() ?? Math.random().toString(36).slice(2)}`;

/** Reports whether a request may have been executed despite the error. */
const open = (error: unknown) => [Code.Unknown, Code.Unavailable, Code.Internal, Code.DeadlineExceeded, Code.Canceled].includes(ConnectError.from(error).code);

/** The key of a form. It changes when a request is answered, or when the form sends something else. */
export function useRequestKey() {
  const last = useRef({ request: "", key: "" });
  return {
    of(...request: unknown[]): string {
      const text = JSON.stringify(request);
      if (last.current.request !== text) last.current = { request: text, key: newKey() };
      return last.current.key;
    },
    /** Call this after each response; error is undefined after a success. */
    answered(error?: unknown): void {
      if (error === undefined || !open(error)) last.current = { request: "", key: "" };
    },
  };
}
