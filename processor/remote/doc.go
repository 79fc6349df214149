// Package remote is the push transport: it calls a processor over HTTP. Dial makes a
// processor.Processor from a namespace's configuration.
//
// ENCODING_PROTO calls ProcessorService by the Connect protocol over HTTP/1.1 (PROTOCOL_CONNECT) or
// by gRPC over HTTP/2, with or without TLS (PROTOCOL_GRPC). The procedure's path is appended to the
// URL. ENCODING_JSON is a plain POST to the URL: the body is a ProcessRequest in protobuf's JSON,
// the answer is status 200 and a ProcessResponse in JSON. ENCODING_MSGPACK is the same in
// MessagePack.
//
// If a processor has several URLs, Process uses them in turn. After an UnreachableError it tries
// the others. Otherwise Process never retries. Its error is one of these types:
//
//   - processor.UnreachableError: the request did not reach user code. The address cannot be
//     resolved or connected to, or is not allowed; the TLS handshake failed; the answer has the
//     HTTP status 408, 429 or 503 and is not an error in Connect's format; Connect or gRPC
//     answered UNAVAILABLE or RESOURCE_EXHAUSTED.
//   - processor.BadResponseError: the answer is invalid. It has an HTTP status or code that is
//     not listed above (including redirects, 404, 502 and 504), cannot be decoded, has an
//     unknown field, or exceeds 16 MiB. A proxy also answers 502 and 504 if a processor fails
//     halfway, so they do not count as unreachable.
//   - processor.LostError: the connection broke after the request was sent. It is unknown whether
//     user code ran.
//   - The context's error: the attempt was cancelled or its deadline passed. If Connect or gRPC
//     answered DEADLINE_EXCEEDED, the error is context.DeadlineExceeded.
//
// Addresses are checked after resolution, for every connection: link-local, multicast and cloud
// metadata addresses are refused; loopback and private ones are allowed. Process does not follow
// redirects, use cookies or decompress answers. It ignores the variables HTTP_PROXY and
// HTTPS_PROXY. Errors contain neither payloads nor header values.
//
// The package imports processor, process and internal encodings, but nothing from the engine or
// storage. Start with dial.go, then endpoints.go, rpc.go and plain.go.
package remote
