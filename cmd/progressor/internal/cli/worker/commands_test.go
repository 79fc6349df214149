package worker

func newCommands() any { return new(Commands) }
