package flow

func newCommands() any { return new(Commands) }
