package job

func newCommands(string) any { return new(Commands) }
