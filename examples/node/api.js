// Code that shop.js and queue.js share: clients for the chosen protocol, and helpers to check responses.

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

// An interceptor runs for every request. This one records which methods were called.
const called = new Set();
const services = [];
const record = (next) => (request) => {
  called.add(`${request.service.typeName}.${request.method.name}`);
  return next(request);
};
const transport = transports[protocol]({ baseUrl, httpVersion: protocol === "grpc" ? "2" : "1.1", interceptors: [record] });

export function client(service) {
  services.push(service);
  return createClient(service, transport);
}

// checkAllCalled checks that every method of every service was called.
export function checkAllCalled() {
  const methods = services.flatMap((service) => service.methods.map((method) => `${service.typeName}.${method.name}`));
  assert.deepEqual(methods.filter((method) => !called.has(method)), [], "methods that were not called");
  console.log(`${protocol}: called all ${methods.length} methods of ${services.length} services`);
}

// Payloads of processes are bytes. Those of the demo are JSON.
export const encode = (value) => new TextEncoder().encode(JSON.stringify(value));
export const decode = (bytes) => JSON.parse(new TextDecoder().decode(bytes));

// Arguments and results of jobs and flows are values.
export const value = (json) => fromJson(ValueSchema, json);
export const plain = (message) => toJson(ValueSchema, message);

// errorOf expects that a request fails with a code, and returns its ErrorDetail. Programs should check
// the reason in it, and not the message.
export async function errorOf(code, request) {
  const error = await request.then(
    () => assert.fail(`want ${Code[code]}, got a response`),
    (thrown) => ConnectError.from(thrown),
  );
  assert.equal(Code[error.code], Code[code], error.message);
  return error.findDetails(ErrorDetailSchema)[0];
}
