/**
 * Throws an error unless one of the keys has signed the request, as defined by Standard Webhooks.
 * The engine can sign its requests to processors, to HTTP targets of crons and to webhooks. To
 * replace a key, pass the old and the new one.
 *
 * @param headers those of node:http, with names in lower case
 * @param body the bytes of the body, unchanged
 * @param keys begin with whsec_, or with whpk_ if they are public keys of Ed25519
 * @param now in seconds since 1970
 */
export declare function verify(headers: {
    [name: string]: string | string[] | undefined;
}, body: Uint8Array, keys: string[], now?: number): void;
