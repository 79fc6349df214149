/** How the payloads of processes are represented: as the JSON that they contain, or as bytes. */
export type Payloads = "json" | "bytes";
/** Parses JSON. Returns undefined if the text is not JSON. */
export declare function jsonOf(text: string): any;
/** Converts a request or a response of a processor to the JSON of the API. */
export declare function encode(message: string, value: object): any;
/** Converts a response or a task from the JSON of the API. */
export declare function decode(message: string, value: any, payloads?: Payloads): any;
