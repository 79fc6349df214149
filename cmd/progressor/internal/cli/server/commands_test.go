package server

func newCommands(string) any { return new(Commands) }
