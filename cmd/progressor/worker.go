package main

type workerCmd struct {
	Run workerRunCmd `cmd:"" default:"withargs" help:"Run jobs by a command of yours."`
}
