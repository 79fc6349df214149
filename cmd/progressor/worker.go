package main

type workerCmd struct {
	Run  workerRunCmd  `cmd:"" default:"withargs" help:"Run jobs by a command of yours."`
	List workerListCmd `cmd:"" help:"List the workers of a namespace."`
	Stop workerStopCmd `cmd:"" help:"Have a worker end, or take nothing new."`
}
