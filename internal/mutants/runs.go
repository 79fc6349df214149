package main

// runMutants break runs that processes start with commands.
var runMutants = []mutant{
	{
		name: "start-run-unchecked", breaks: "a run of a command is checked when it starts",
		file: "engine/flows/task.go", old: " || o.Unchecked {", planted: " {",
		packages: "./engine/flows", run: "TestStartRunCommand$",
	},
	{
		name: "start-run-silent", breaks: "the parent is notified of the end of its run",
		file: "engine/flows/process_command.go", old: "NotifyParentArgs: c.GetNotifyParentArgs(),", planted: "",
		packages: "./engine/flows", run: "TestStartRunCommand$",
	},
	{
		name: "start-run-failed-is-completed", breaks: "the parent sees that its run has failed",
		file:     "engine/flows/process_command.go",
		old:      "child.Status = progressorv1.ProcessStatus_PROCESS_STATUS_ERROR",
		planted:  "_ = progressorv1.ProcessStatus_PROCESS_STATUS_ERROR",
		packages: "./engine/flows", run: "TestStartRunCommand$",
	},
	{
		name: "start-run-to-any-namespace", breaks: "command_namespaces applies to runs",
		file: "engine/commands.go", old: "return c.StartRun.GetNamespace()", planted: `return ""`,
		packages: "./engine/flows", run: "TestStartRunCommandIsChecked",
	},
}
