package main

// codecMutants store payloads in the clear, accept modified payloads, or lose the reason of an
// error.
var codecMutants = []mutant{
	{
		name: "codec-ignores-purposes", breaks: "a payload of one purpose is not decoded as another one",
		file: "processor/codec/aesgcm.go", old: "return append(bytes.Clone(header), purpose...)",
		planted: "return bytes.Clone(header)", packages: "./processor/codec", run: "TestAESGCMRejects",
	},
	{
		name: "codec-repeats-salts", breaks: "payloads without a Repeat have a random salt and nonce",
		file: "processor/codec/aesgcm.go", old: "_, _ = rand.Read(start[:])", planted: "_, _ = rand.Read(nil)",
		packages: "./processor/codec", run: "TestAESGCM$",
	},
	{
		name: "codec-accepts-plain", breaks: "a JSON value that is not encoded is an error",
		file:     "processor/codec/payloads.go",
		old:      "	case !accepted.accepts(value):\n		return nil, ErrPlain\n	}\n	for name",
		planted:  "	}\n	for name",
		packages: "./processor/codec", run: "TestPlainPayloads",
	},
	{
		name: "codec-forgets-a-field", breaks: "every payload of the API is encoded",
		file: "processor/codec/fields.go", old: "	\"StartCommand.notify_parent_args\":    message,\n", planted: "",
		packages: "./processor/codec", run: "TestEveryFieldIsClassified",
	},
	{
		name: "codec-changes-repeated-requests", breaks: "a repeated request has the same payloads",
		file: "processor/codec/fields.go", old: "return repeatOfKey(\"call\", r.GetIdempotencyKey(),",
		planted: "return repeatOfKey(\"call\", \"\",", packages: "./processor/codec", run: "TestRepeatedRequests",
	},
	{
		name: "codec-fails-calls", breaks: "a call that cannot be decoded does not change the process",
		file: "processor/codec.go", old: "return Reject(ReasonUndecodable,", planted: "return Fail(ReasonUndecodable,",
		packages: "./processor", run: "TestCodecIsIntroduced",
	},
	{
		name: "codec-sends-in-the-clear", breaks: "a client sends encoded payloads",
		file: "client/codec.go", old: "return encoded, nil", planted: "_ = encoded\n	return message, nil",
		packages: "./client", run: "TestCodecOfClients",
	},
	{
		name: "codec-answers-in-the-clear", breaks: "the answers of a worker have encoded payloads",
		file: "client/held_lease.go", old: "encoded, err := r.client.payloads.Encode(ctx, resp)",
		planted:  "encoded, err := r.client.payloads.Encode(ctx, resp)\n	encoded = resp",
		packages: "./cmd/progressor", run: "TestPayloadsAreEncrypted",
	},
	{
		name: "codec-trusts-the-kind", breaks: "a request to a processor has no plain state, whatever its kind is",
		file: "processor/codec/messages.go", old: "w.inProcessRequest = true", planted: "w.inProcessRequest = false",
		packages: "./processor/codec", run: "TestForgedKind",
	},
	{
		name: "codec-accepts-plain-parts", breaks: "the parts of composed args are encoded",
		file: "processor/codec/fields.go", old: "	return encodedWhole\n}\n\n// formIn",
		planted: "	return encodedOrNot\n}\n\n// formIn", packages: "./processor/codec", run: "TestComposedPayloads",
	},
	{
		name:   "codec-stores-parts-in-messages",
		breaks: "an error about args that cannot be decoded contains no part of them",
		file:   "processor/json.go", old: "	text, ok := errors.AsType[*textError](err)\n	if !ok {",
		planted:  "	text, ok := errors.AsType[*textError](err)\n	if !ok || true {",
		packages: "./processor", run: "TestCodecHidesParts",
	},
	{
		name: "codec-rejects-in-an-outage", breaks: "a call is not rejected because the codec is unavailable",
		file: "processor/codec.go", old: "if codec.Unavailable(err) {", planted: "if false {",
		packages: "./processor", run: "TestCodecIsUnavailable",
	},
	{
		name: "codec-fails-jobs-in-an-outage", breaks: "a worker releases its tasks while the codec is unavailable",
		file: "client/held_lease.go", old: "	return Release(decodePause)", planted: "	return err",
		packages: "./client", run: "TestWorkerOfAnUnavailableCodec",
	},
}
