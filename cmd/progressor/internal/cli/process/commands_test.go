package process

func newCommands(string) any { return new(Commands) }
