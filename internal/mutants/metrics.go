package main

// metricMutants are the mutants of metrics, alerts and logs of requests.
var metricMutants = []mutant{
	{
		name: "first-failure-uncounted", breaks: "the failures of a namespace are exported before the first one",
		file:     "engine/metrics.go",
		old:      "m.completion.WithLabelValues(name, completionError)",
		planted:  "NewLazySeries(m.completion, name, completionError)",
		packages: "./cmd/progressor", run: "TestAlertsHaveTheirSeries",
	},
	{
		name: "first-refusal-uncounted", breaks: "rejections of each limit are exported before the first one",
		file:     "engine/rpc/handler.go",
		old:      "	e.AddRefusals(append(clientBounds(), boundOfMemory)...)\n",
		planted:  "",
		packages: "./cmd/progressor", run: "TestAlertsHaveTheirSeries",
	},
	{
		name: "first-loss-uncounted", breaks: "the lost leases of a job are exported before the first one",
		file:     "engine/jobs/metrics.go",
		old:      "	m.startName(namespace, name)\n	return name",
		planted:  "	return name",
		packages: "./engine/jobs", run: "TestCountersBeginAtZero",
	},
	{
		name: "first-dead-letter-uncounted", breaks: "the dead letters of a sink are exported before the first one",
		file: "engine/sinks/delivery.go", old: "	s.metrics.start(s.labels(c.Namespace, c.SinkID))\n", planted: "",
		packages: "./engine/sinks", run: "TestMetrics$",
	},
	{
		name: "request-id-unchecked", breaks: "a client cannot choose an ID that must be escaped",
		file: "internal/requestid/requestid.go", old: "len(values) == 1 && valid(values[0])",
		planted:  "len(values) == 1",
		packages: "./internal/requestid", run: "TestFrom",
	},
	{
		name: "ops-requests-not-logged", breaks: "log.requests also applies to the listener for probes",
		file: "cmd/progressor/internal/cli/server/ops.go", old: "rpc.Identify(s.front, n.api.requests, log)",
		planted:  "rpc.Identify(s.front, rpc.LogNoRequests, log)",
		packages: "./cmd/progressor", run: "TestOpsListener$",
	},
	{
		name: "parameters-in-the-log", breaks: "the log of requests has no parameters of URLs",
		file: "engine/rpc/requestlog.go", old: `request.Method + " " + request.URL.Path`,
		planted:  `request.Method + " " + request.URL.String()`,
		packages: "./engine/rpc", run: "TestRequestLog",
	},
	{
		name: "audit-without-request", breaks: "an entry of the audit has the ID of the request",
		file: "storage/audit.go", old: `details["request_id"] = n.By.RequestID`,
		planted:  "_ = details",
		packages: "./cmd/progressor", run: "TestRequestIDs",
	},
}
