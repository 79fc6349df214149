package worker

func newCommands(string) any { return new(Commands) }
