// Package msgpack encodes and decodes protobuf messages as MessagePack, as protojson does as JSON.
// A message is a map from field names to values. Start with Marshal and Unmarshal.
//
// Field names are in camelCase. Decoding also accepts the names in the proto files. Empty fields
// are omitted. bytes are encoded as bin, an enum as the str of its name, integers as int, and float
// and double as float. Durations and times are strings as in JSON. Decoding also accepts a number
// of seconds and the timestamp extension. Decoding is strict: it rejects unknown and duplicate
// fields, wrong types, invalid UTF-8, values that are nested too deeply, and bytes after the
// message.
//
// A google.protobuf.Value is converted without loss. An object with a single key, listed in
// read_value.go, represents a value that JSON cannot represent. The width of numbers and lengths,
// the order of maps with string keys, and the bits of a NaN are not preserved. See value and
// structValue for the rules.
package msgpack
