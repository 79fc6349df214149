package cron

func newCommands(string) any { return new(Commands) }
