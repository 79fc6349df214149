package main

// userMutants mix processes of users with internal ones.
var userMutants = []mutant{
	{
		name: "suspended-jobs-of-users", breaks: "a suspended job is not counted as a process of users",
		file: "sql/status_counts.sql", old: "job.sign * suspended_jobs.n", planted: "0 * suspended_jobs.n",
		packages: "./engine/jobs", run: "TestCountUserProcesses",
	},
	{
		name: "members-of-users", breaks: "members of a job for several workers are no processes of users",
		file: "sql/status_counts.sql", old: "p.process_id < '~job/~0'", planted: "p.process_id < '~job/~/'",
		packages: "./engine/jobs", run: "TestCountUserProcesses",
	},
	{
		name: "internal-processes-listed", breaks: "a list of processes of users has no internal processes",
		file: "engine/processes.go", old: "if r.GetUsersOnly() {", planted: "if false {",
		packages: "./engine/jobs", run: "TestCountUserProcesses",
	},
}
