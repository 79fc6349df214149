package flow

func newCommands(string) any { return new(Commands) }
