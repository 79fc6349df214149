package search

import "github.com/progressor-engine/progressor/process"

// pausedCron is true if a cron is paused according to the first line of its state, which is JSON.
// Text values cannot contain the pattern, because their quotes would be escaped. The condition
// never fails, regardless of the state of a process.
const pausedCron = `coalesce(position('"paused":true'::bytea IN substring(p.aux_state
	FROM 1 FOR position('\x0a'::bytea IN p.aux_state))) > 0, false)`

// failingCron is true if the last run of a cron failed. Only then does its state contain a number
// of failures.
const failingCron = `coalesce(position('"failures":'::bytea IN substring(p.aux_state
	FROM 1 FOR position('\x0a'::bytea IN p.aux_state))) > 0, false)`

// crons describes the fields of crons for filters. A cron is a process, so p is a row of processes.
var crons = &table{
	fields: []*field{
		{
			name: "cron_id", compare: inOrder("p.process_id", "'"+process.CronPrefix+"' || $?::text"),
			prefix: "starts_with(p.process_id, '" + process.CronPrefix + "' || $?::text)",
		},
		{name: "paused", values: isTruth, compare: map[string]string{equals: pausedCron + " = $?::bool"}},
		{name: "failing", values: isTruth, compare: map[string]string{equals: failingCron + " = $?::bool"}},
		fieldStatus, fieldCreated, fieldMetadata,
	},
	example: `cron_id = "nightly"`, text: "cron_id = ",
}

// onlyCrons matches only crons.
var onlyCrons = Filter{
	&comparison{field: fieldProcessID, operator: equals, value: value{kind: isPrefix, text: process.CronPrefix}},
}

// ParseCrons parses a filter of crons, over cron_id, paused, failing, status, created_time and
// metadata. It matches only crons, and is fast in the order OrderID.
func ParseCrons(text string) (Filter, error) {
	f, err := parse(text, crons)
	return onlyCrons.And(f), err
}
