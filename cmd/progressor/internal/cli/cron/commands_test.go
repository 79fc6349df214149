package cron

func newCommands() any { return new(Commands) }
