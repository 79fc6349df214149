package admin

func newCommands() any { return new(Commands) }
