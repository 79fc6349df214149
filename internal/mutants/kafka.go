package main

const kafkaDeliverer = "engine/sinks/kafka/deliverer.go"

// kafkaMutants are the mutants for change formats and Kafka sinks.
var kafkaMutants = []mutant{
	{
		name: "format-id-not-unique", breaks: "changes of different processes have different IDs",
		file: "engine/sinks/format/format.go", old: `string { return c.GetNamespace() + ":" + c.GetProcessId() }`,
		planted:  `string { return c.GetNamespace() + "/" + c.GetProcessId() }`,
		packages: "./engine/sinks/format", run: "TestStableAndUnique",
	},
	{
		name: "format-json-differs", breaks: "targets receive changes in the JSON of the API",
		file: "engine/sinks/format/json.go", old: "case ns%1e6 == 0:", planted: "case ns%1e6 == 1:",
		packages: "./engine/sinks/format", run: "TestJSONIsThatOfTheAPI",
	},
	{
		name: "format-header-not-encoded", breaks: "headers of HTTP contain only printable ASCII",
		file: "engine/sinks/format/headers.go", old: "b > 0x20 && b < 0x7f &&", planted: "b > 0x20 &&",
		packages: "./engine/sinks/format", run: "TestBinary",
	},
	{
		name: "kafka-no-client-certificate", breaks: "a sink presents its certificate to the brokers of Kafka",
		file:     "engine/sinks/targets/targets.go",
		old:      `"sink.kafka.tls", settings, m.GetTls().GetCertificateSecret())`,
		planted:  `"sink.kafka.tls", settings, "")`,
		packages: "./engine/sinks", run: "TestKafkaClientCertificate",
	},
	{
		name: "kafka-no-key", breaks: "the changes of a process are in one partition",
		file: kafkaDeliverer, old: "Key: []byte(format.Key(c))", planted: "Key: []byte(format.ID(c))",
		packages: "./engine/sinks/kafka", run: "TestRepeatsInTheClient",
	},
	{
		name: "kafka-continues-after-error", breaks: "no chunk is sent after a failed one",
		file: kafkaDeliverer, old: "			return d.explain(ctx, err)\n		}\n		records",
		planted: "			_ = d.Deliver(ctx, changes[len(changes)-len(records)+n:])\n" +
			"			return d.explain(ctx, err)\n		}\n		records",
		packages: "./engine/sinks/kafka", run: "TestFailureKeepsTheOrder",
	},
	{
		name: "kafka-several-batches", breaks: "a chunk has at most one batch for each partition",
		file: kafkaDeliverer, old: "(bytes > d.maxBytes || !known)", planted: "!known",
		packages: "./engine/sinks/kafka", run: "TestFailureKeepsTheOrder|TestTooLarge",
	},
	{
		name: "kafka-rejected-last", breaks: "changes that were too large together are sent before later ones",
		file: kafkaDeliverer, old: "append(rejected, records[n:]...)", planted: "append(records[n:], rejected...)",
		packages: "./engine/sinks/kafka", run: "TestSmallBatches|TestTooLarge",
	},
	{
		name: "kafka-client-kept-after-timeout", breaks: "a delivery that has timed out is not sent any more",
		file: kafkaDeliverer, old: "errors.Join(context.Cause(ctx), d.open())", planted: "context.Cause(ctx)",
		packages: "./engine/sinks/kafka", run: "TestNoAnswer",
	},
	{
		name: "kafka-too-large-is-repeated", breaks: "a change that is too large is a permanent error",
		file: "engine/sinks/kafka/errors.go", old: "case tooLarge(err):", planted: "case false:",
		packages: "./engine/sinks/kafka", run: "TestTooLarge",
	},
	{
		name: "kafka-permission-is-permanent", breaks: "a missing permission does not send changes to the dead letters",
		file: "engine/sinks/kafka/errors.go", old: "case errors.Is(err, kerr.InvalidRecord):",
		planted:  "case !kerr.IsRetriable(err):",
		packages: "./engine/sinks/kafka", run: "TestAuthentication",
	},
}
