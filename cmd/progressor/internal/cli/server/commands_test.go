package server

func newCommands() any { return new(Commands) }
