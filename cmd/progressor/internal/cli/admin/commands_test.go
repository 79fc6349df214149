package admin

func newCommands(string) any { return new(Commands) }
