package job

func newCommands() any { return new(Commands) }
