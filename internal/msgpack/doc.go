// Package msgpack encodes and decodes protobuf messages as MessagePack, like protojson as JSON: a
// message is a map from field names to values. Start with Marshal and Unmarshal.
//
// Field names are in camelCase. Names as in the proto files are also accepted. Empty fields are
// omitted. bytes are bin, enums are their names, integers ints, and float and double floats.
// Durations and times are strings as in JSON; a number of seconds and the timestamp extension are
// also accepted. Decoding is strict: it rejects unknown and duplicate fields, wrong types, invalid
// UTF-8, values that are nested too deeply, and bytes after the message.
//
// A google.protobuf.Value is converted without loss. An object with a single key, listed in
// read_value.go, represents a value that JSON cannot represent. The width of numbers and lengths,
// the order of maps with string keys, and the bits of a NaN are not preserved. See value and
// structValue for the rules.
package msgpack
