// What shop.js and queue.js share: clients over the protocol that was asked for, and what helps to look at answers.

import assert from "node:assert/strict";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { fromJson, toJson } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import { ErrorDetailSchema } from "./gen/progressor/v1/process_pb.js";

const [baseUrl = "http://127.0.0.1:8080", chosen = "connect"] = process.argv.slice(2);
const transports = { connect: createConnectTransport, grpc: createGrpcTransport, "grpc-web": createGrpcWebTransport };
assert.ok(transports[chosen], `protocol ${chosen}: want ${Object.keys(transports).join(", ")}`);
export const protocol = chosen;

// An interceptor sees every request: this one notes which methods were called.
const called = new Set();
const services = [];
const note = (next) => (request) => {
  called.add(`${request.service.typeName}.${request.method.name}`);
  return next(request);
};
const transport = transports[protocol]({ baseUrl, httpVersion: protocol === "grpc" ? "2" : "1.1", interceptors: [note] });

export function client(service) {
  services.push(service);
  return createClient(service, transport);
}

// allCalled returns the number of methods. All of them must have been called.
export function allCalled() {
  const methods = services.flatMap((service) => service.methods.map((method) => `${service.typeName}.${method.name}`));
  assert.deepEqual(methods.filter((method) => !called.has(method)), [], "methods that were not tried");
  console.log(`${protocol}: ${methods.length} of ${methods.length} methods of ${services.length} services answer as they should`);
}

// Payloads of processes are bytes; the demo's are JSON.
export const encode = (value) => new TextEncoder().encode(JSON.stringify(value));
export const decode = (bytes) => JSON.parse(new TextDecoder().decode(bytes));

// Arguments and results of jobs and flows are values.
export const value = (json) => fromJson(ValueSchema, json);
export const plain = (message) => toJson(ValueSchema, message);

// refused expects an error and gives its ErrorDetail: decide by its reason, never by the message.
export async function refused(code, request) {
  const error = await request.then(
    () => assert.fail(`want ${Code[code]}, got an answer`),
    (thrown) => ConnectError.from(thrown),
  );
  assert.equal(Code[error.code], Code[code], error.message);
  return error.findDetails(ErrorDetailSchema)[0];
}
