package main

// capturedMutants run new jobs that must wait, or keep slots.
var capturedMutants = []mutant{
	{
		name: "captured-job-twice", breaks: "a captured job does not also wait in schedule",
		file: "sql/enqueue.sql", old: "    FROM decided\n   WHERE created\n     AND NOT captured),",
		planted:  "    FROM decided\n   WHERE created),",
		packages: "./storage", run: "TestEnqueueCaptured",
	},
	{
		name: "captured-job-without-keys", breaks: "a captured job does not run if the namespace now has constraints",
		file: "sql/enqueue.sql", old: "checked.created AND checked.capture AND checked.waits_for = 'place'",
		planted:  "checked.created AND checked.capture",
		packages: "./storage", run: "TestEnqueueCaptured",
	},
	{
		name: "captured-job-of-workers", breaks: "a node does not run a new job of workers",
		file: "engine/capture_new.go", old: "!ns.servable() || ", planted: "",
		packages: "./engine/jobs", run: "TestJobsWait",
	},
	{
		name: "captured-job-leaks", breaks: "a job that is not created keeps no slot",
		file: "engine/capture_new.go", old: "		release()\n", planted: "",
		packages: "./engine/jobs", run: "TestSlotOfRefusedJob",
	},
}
