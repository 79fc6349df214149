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
	{
		name: "wait-run-unchecked", breaks: "the wait of a run without a template is checked before it is stored",
		file: "engine/flows/process_command.go",
		old:  "if _, err = newWaitTemplate(wait); err != nil {", planted: "if false {",
		packages: "./engine/flows", run: "TestRunWithAWrongWait",
	},
	{
		name: "human-title-is-a-template", breaks: "the title of a question has no expressions",
		file: "processor/durable/human.go",
		old:  `strings.ReplaceAll(text, "${", "$${")`, planted: `strings.Clone(text)`,
		packages: "./processor/durable", run: "TestHumanAsks",
	},
	{
		name: "human-due-never", breaks: "a question whose due time is past ends",
		file: "processor/durable/human.go", old: "max(*o.due, time.Millisecond)", planted: "max(*o.due, 0)",
		packages: "./processor/durable", run: "TestHumanAsks",
	},
}
