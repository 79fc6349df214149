// google.protobuf.Value, which the generated code has as a message, from and to plain JSON.
import { fromJson, toJson, type JsonValue } from "@bufbuild/protobuf";
import { ValueSchema, type Value } from "@bufbuild/protobuf/wkt";

export const plainValue = (v?: Value): unknown => (v === undefined || v.kind.case === undefined ? null : toJson(ValueSchema, v));
export const valueOf = (json: JsonValue): Value => fromJson(ValueSchema, json);
