package process

func newCommands() any { return new(Commands) }
