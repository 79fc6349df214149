package main

const (
	pythonClient = "sdk/python/src/progressor/client.py"
	pythonWorker = "sdk/python/src/progressor/worker.py"
	nodeClient   = "sdk/typescript/dist/client.js"
	nodeWorker   = "sdk/typescript/dist/worker.js"
	nodeLease    = "sdk/typescript/dist/lease.js"
	nodeDurable  = "sdk/typescript/dist/durable.js"
	nodeFunction = "sdk/typescript/dist/function.js"
)

// sdkMutants break rules of the SDKs, of durable functions and of the conformance kit. The tests
// run the copies of the SDKs that Go embeds, so an overlay can change them.
var sdkMutants = []mutant{
	{
		name: "denied-command-blocks-answers", breaks: "a denied command of one answer does not block other answers",
		file: "client/answers.go", old: "isBad = hasCommands",
		planted:  "isBad = func(*heldLease) bool { return false }",
		packages: "./client", run: "TestDeniedCommand",
	},
	{
		name: "sdk-node-repeats-changes", breaks: "only reads and requests with a key are sent again",
		file: nodeClient, old: `(safe && error.code === "unavailable")`, planted: `error.code === "unavailable"`,
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/client",
	},
	{
		name: "sdk-node-random-runs", breaks: "IDs of runs grow with time",
		file: nodeClient, old: "request.runId = request.idempotencyKey;", planted: "",
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/client",
	},
	{
		name: "sdk-python-random-runs", breaks: "IDs of runs grow with time",
		file: pythonClient, old: `request["run_id"] = request["idempotency_key"]`, planted: "pass",
		packages: "./cmd/progressor", run: "TestPythonSDK$/client",
	},
	{
		name: "sdk-node-runs-steps-too-early", breaks: "what a step depends on is stored before it runs",
		file: nodeFunction, old: "if (journal.unsaved.length > 0 && !(await this.checkpoint()))",
		planted:  "if (false)",
		packages: "./cmd/progressor", run: "TestNodeConforms",
	},
	{
		name: "sdk-node-forgets-checkpoints", breaks: "the result follows the last checkpoint",
		file: nodeWorker, old: "held.lastEventId = response.lastEventId;", planted: "",
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/durable",
	},
	{
		name: "sdk-node-keeps-uncertain-leases", breaks: "an attempt without a response to a checkpoint is released",
		file: nodeWorker, old: "held.uncertain = !isLost(error);", planted: "",
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/durable",
	},
	{
		name: "sdk-node-repeats-bad-checkpoints", breaks: "a checkpoint that is not JSON fails the task",
		file: nodeWorker, old: "throw failure(`the checkpoint is not", planted: "void failure(`the checkpoint is not",
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/durable",
	},
	{
		name: "sdk-node-needs-checkpoints", breaks: "an older engine stores no checkpoints",
		file:     nodeWorker,
		old:      `error instanceof ProgressorError && error.code === "unimplemented")`,
		planted:  "false)",
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/durable",
	},
	{
		name: "sdk-node-starts-with-repairs", breaks: "a repair by step does not start a function",
		file: nodeFunction, old: `if (type === "TASK_TYPE_REPAIR" && isByStep(`, planted: `if (false && isByStep(`,
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/durable",
	},
	{
		name: "sdk-node-repairs-null", breaks: "a repair with null instead of a list or a name is rejected",
		file: "sdk/typescript/dist/repair.js", old: "if (!isSet && !areNames(value))", planted: "if (false)",
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/durable",
	},
	{
		name:   "sdk-node-undoes-in-order-of-journal",
		breaks: "after a repair, steps are undone in the order of the function",
		file:   nodeFunction, old: "if (journal.repaired)", planted: "if (false)",
		packages: "./cmd/progressor", run: "TestNodeConforms",
	},
	{
		name: "durable-rewinds-to-any-kind", breaks: "a name of a rewind means the step with this name",
		file: "processor/durable/forget.go", old: "kind, name = kindStep, text",
		planted:  "kind, name = kindValue, text",
		packages: "./processor/durable", run: "TestRewindNames",
	},
	{
		name: "sdk-node-rewinds-to-any-kind", breaks: "a name of a rewind means the step with this name",
		file: "sdk/typescript/dist/repair.js", old: `found.includes("step") ? "step" : found[0]`, planted: "found[0]",
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/durable",
	},
	{
		name: "sdk-node-rewinds-in-order-of-journal", breaks: "after a repair, a rewind uses the order of the function",
		file: "sdk/typescript/dist/repair.js", old: "place(at) >= place(first)", planted: "at >= first",
		packages: "./cmd/progressor", run: "TestNodeConforms",
	},
	{
		name: "conformance-kills-nothing", breaks: "the kit loses each result once",
		file: "internal/conformance/kit.go", old: "len(e.results) == e.kill", planted: "false",
		packages: "./internal/conformance", run: "TestDifferences",
	},
	{
		name: "conformance-waits-for-answers", breaks: "a task without an answer ends the kit",
		file: "internal/conformance/kit.go", old: "context.WithTimeout(ctx, e.timeout)",
		planted:  "context.WithTimeout(ctx, time.Hour)",
		packages: "./internal/conformance", run: "TestNoAnswer",
	},
	{
		name: "conformance-ignores-timers", breaks: "the kit compares timers",
		file: "internal/conformance/describe.go", old: "range r.GetNamedTimers()",
		planted:  "range r.GetNamedTimers()[:0]",
		packages: "./internal/conformance", run: "TestDifferences",
	},
	{
		name: "sdk-node-awaits-anything", breaks: "a function that waits for I/O fails",
		file: nodeDurable, old: "if (!branch.ended && !branch.wait && !this.failure)", planted: "if (false)",
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/durable",
	},
	{
		name: "sdk-node-allows-races", breaks: "a context has one operation at a time",
		file: nodeDurable, old: "&& !body && !this.wait && !run.failure)", planted: "&& !body && !run.failure)",
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/durable",
	},
	{
		name: "sdk-node-undoes-forward", breaks: "steps are undone newest first",
		file: nodeFunction, old: "mustUndo(entry)).reverse()", planted: "mustUndo(entry))",
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/durable",
	},
	{
		name: "sdk-node-ignores-lost-leases", breaks: "a lost lease stops the handler",
		file: nodeLease, old: "if (!held.answering)\n            lose(",
		planted:  "if (false)\n            lose(",
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/worker",
	},
	{
		name: "sdk-node-answers-once", breaks: "an answer is sent again after a lost response",
		file: nodeWorker, old: "if (isLost(error))", planted: "if (true)",
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/worker",
	},
	{
		name: "sdk-node-loses-progress", breaks: "the next attempt gets the last progress",
		file: nodeWorker, old: `if (held.progress && !held.lost && outcome !== "done")`, planted: "if (false)",
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/worker",
	},
	{
		name: "sdk-node-refuses-without-token", breaks: "an answer is sent again if the token could not be read",
		file: nodeClient, old: "throw new ProgressorError(\"unauthenticated\", `there",
		planted:  "throw new ProgressorError(\"invalid_argument\", `there",
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/faults",
	},
	{
		name: "sdk-node-waits-for-tokens", breaks: "a request ends even if its token never comes",
		file: nodeClient, old: `await Promise.race([read(), aborted])`, planted: `await read()`,
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/faults",
	},
	{
		name: "sdk-node-trusts-proxies", breaks: "a response with an unknown code does not come from the engine",
		file: "sdk/typescript/dist/errors.js", old: `!known.includes(body.code)`, planted: `!body.code`,
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/faults",
	},
	{
		name: "sdk-node-rounds-integers", breaks: "a payload with an integer beyond 2^53 stays bytes",
		file: "sdk/typescript/dist/json.js", old: `return isExact(text) ? value : bytes;`, planted: `return value;`,
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/faults",
	},
	{
		name: "sdk-node-shares-details", breaks: "details of the progress are copied",
		file: nodeWorker, old: `held.progress = JSON.parse(json);`, planted: `held.progress = progress;`,
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/faults",
	},
	{
		name: "sdk-node-ends-at-callback-errors", breaks: "a callback that throws does not end the worker",
		file: nodeWorker, old: `this.ended = harmless((attempt) => options.ended?.(attempt));`,
		planted:  `this.ended = (attempt) => options.ended?.(attempt);`,
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/faults",
	},
	{
		name: "sdk-node-slow-heartbeats", breaks: "a heartbeat waits no longer than the shortest interval",
		file: nodeWorker, old: `...all.map((held) => Math.max(held.interval, 1000))`,
		planted:  `Math.max(...all.map((held) => held.interval))`,
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/faults",
	},
	{
		name: "sdk-node-drops-leases", breaks: "a lease that cannot be decoded does not affect the others",
		file: nodeWorker, old: `undecodable = new (refusable`, planted: `throw new (refusable`,
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/faults",
	},
	{
		name: "sdk-node-infinite-grace-is-zero", breaks: "an infinite grace period is a long one",
		file: nodeWorker, old: `sleep(Math.min(limit, maxTimer)`, planted: `sleep(limit`,
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/faults",
	},
	{
		name: "sdk-python-repeats-changes", breaks: "only reads and requests with a key are sent again",
		file: pythonClient, old: `safe and error.code == "unavailable"`, planted: `error.code == "unavailable"`,
		packages: "./cmd/progressor", run: "TestPythonSDK$/client",
	},
	{
		name: "sdk-python-uses-closed-connections", breaks: "a connection that the server closed is not used",
		file: pythonClient, old: "if _is_readable(found.sock):", planted: "if False:",
		packages: "./cmd/progressor", run: "TestPythonSDK$/client",
	},
	{
		name: "sdk-python-without-keys", breaks: "a processor with an empty list of keys refuses everything",
		file:     "sdk/python/src/progressor/processor.py",
		old:      "if self._keys is not None:",
		planted:  "if self._keys:",
		packages: "./cmd/progressor", run: "TestPythonSDK$/client",
	},
	{
		name: "sdk-python-runs-lost-jobs", breaks: "a lost lease stops the handler",
		file: pythonWorker, old: "if not job._answering:", planted: "if False:",
		packages: "./cmd/progressor", run: "TestPythonSDK$/worker",
	},
	{
		name: "sdk-python-without-key", breaks: "a request gets an idempotency key, which its retries reuse",
		file: pythonClient, old: `"idempotency_key": _new_key()`, planted: `"idempotency_key": ""`,
		packages: "./cmd/progressor", run: "TestPythonSDK$/client",
	},
	{
		name: "sdk-python-refuses-without-token", breaks: "an answer is sent again if the token could not be read",
		file: pythonClient, old: `raise ProgressorError("unauthenticated", f"there`,
		planted:  `raise ProgressorError("invalid_argument", f"there`,
		packages: "./cmd/progressor", run: "TestPythonSDK$/faults",
	},
	{
		name: "sdk-python-drops-answers", breaks: "an answer counts as refused only if the engine refused it",
		file: pythonWorker, old: "    if not isinstance(error, ProgressorError):\n        return False",
		planted:  "    if not isinstance(error, ProgressorError):\n        return False\n    return True",
		packages: "./cmd/progressor", run: "TestPythonSDK$/faults",
	},
	{
		name: "sdk-python-trusts-proxies", breaks: "a response with an unknown code does not come from the engine",
		file: "sdk/python/src/progressor/errors.py", old: ` or code not in _KNOWN:`, planted: `:`,
		packages: "./cmd/progressor", run: "TestPythonSDK$/faults",
	},
	{
		name: "sdk-python-keeps-unstarted-jobs", breaks: "jobs whose threads do not start are released",
		file: pythonWorker, old: "            if left:\n", planted: "            if False:\n",
		packages: "./cmd/progressor", run: "TestPythonSDK$/faults",
	},
	{
		name: "sdk-python-continues-without-threads", breaks: "a worker whose own thread fails ends",
		file: pythonWorker, old: "self._error = self._error or error\n            self._stopping.set()",
		planted:  `self._error = self._error or error`,
		packages: "./cmd/progressor", run: "TestPythonSDK$/faults",
	},
	{
		name: "sdk-python-shares-details", breaks: "details of the progress are copied",
		file: pythonWorker, old: `self._progress = json.loads(content)`, planted: `self._progress = progress`,
		packages: "./cmd/progressor", run: "TestPythonSDK$/faults",
	},
	{
		name: "sdk-python-stops-heartbeats", breaks: "heartbeats continue after an unexpected error",
		file: pythonWorker, old: "                failed = time.monotonic()\n\n",
		planted:  "                return\n\n",
		packages: "./cmd/progressor", run: "TestPythonSDK$/faults",
	},
	{
		name: "sdk-python-refuses-deep-payloads", breaks: "a payload that Python cannot decode stays bytes",
		file: "sdk/python/src/progressor/_json.py", old: `except (ValueError, RecursionError):`,
		planted:  `except ValueError:`,
		packages: "./cmd/progressor", run: "TestPythonSDK$/faults",
	},
	{
		name: "sdk-python-drops-leases", breaks: "a lease that cannot be decoded does not affect the others",
		file: pythonWorker, old: `return Job(self, decode("Lease", lease, "bytes"), received), undecodable`,
		planted:  `raise`,
		packages: "./cmd/progressor", run: "TestPythonSDK$/faults",
	},
	{
		name: "sdk-python-guesses-lengths", breaks: "a body needs exactly one length",
		file: "sdk/python/src/progressor/processor.py", old: `if len(lengths) != 1 or`,
		planted:  `if len(lengths) == 0 or`,
		packages: "./cmd/progressor", run: "TestPythonSDK$/faults",
	},
	{
		name: "sdk-python-takes-chunks", breaks: "a chunked body is refused",
		file: "sdk/python/src/progressor/processor.py", old: `size = None if chunked else`,
		planted:  `size = 0 if chunked else`,
		packages: "./cmd/progressor", run: "TestPythonSDK$/faults",
	},
	{
		name: "sdk-node-cancels-its-poll", breaks: "a worker that stops reads the response to its last poll",
		file: nodeWorker, old: "ending.abort(signal.reason), pollMargin)",
		planted:  "ending.abort(signal.reason), 0)",
		packages: "./cmd/progressor", run: "TestTypeScriptSDK$/worker",
	},
	{
		name: "sdk-python-cancels-its-poll", breaks: "a worker that stops reads the response to its last poll",
		file: pythonWorker, old: "            self._end_poll(poller)\n",
		planted:  "            self._client._connections.abort(poller.ident)\n",
		packages: "./cmd/progressor", run: "TestPythonSDK$/worker",
	},
}
