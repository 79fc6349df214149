package main

type devCmd struct{}

func (devCmd) Run() error { return nil }

type serveCmd struct {
	configFlag
	serveSettings
}

func (serveCmd) Run() error { return nil }

type doctorCmd struct{}

func (doctorCmd) Run() error { return nil }
