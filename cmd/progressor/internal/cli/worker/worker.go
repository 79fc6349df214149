package worker

// Commands are the commands that run and manage workers.
type Commands struct {
	Worker workerCmd `cmd:"" group:"job" help:"Run workers; list, show and stop them."`
}

type workerCmd struct {
	Run  workerRunCmd  `cmd:"" default:"withargs" help:"Run a command for each job."`
	List workerListCmd `cmd:"" help:"List the workers of a namespace."`
	Get  workerGetCmd  `cmd:"" help:"Show what a worker does: its leases and its last results."`
	Stop workerStopCmd `cmd:"" help:"Stop a worker, or stop it from taking new jobs."`
}
