package search

import "github.com/progressor-engine/progressor/process"

// pausedCron tells whether a cron is paused, as the first line of its state has it, which is JSON: in a text of it this could not stand, for its
// quotes would be escaped there. It never fails, whatever the state of a process is.
const pausedCron = `coalesce(position('"paused":true'::bytea IN substring(p.aux_state FROM 1 FOR position('\x0a'::bytea IN p.aux_state))) > 0, false)`

// crons are processes too: of a row p.
var crons = &table{
	fields: []*field{
		{name: "cron_id", compare: inOrder("p.process_id", "'"+process.CronPrefix+"' || $?::text"), prefix: "starts_with(p.process_id, '" + process.CronPrefix + "' || $?::text)"},
		{name: "paused", values: isTruth, compare: map[string]string{equals: pausedCron + " = $?::bool"}},
		fieldStatus, fieldCreated, fieldMetadata,
	},
	example: `cron_id = "nightly"`, text: "cron_id = ",
}

// onlyCrons holds for crons and nothing else.
var onlyCrons = Filter{&comparison{field: fieldProcessID, operator: equals, value: value{kind: isPrefix, text: process.CronPrefix}}}

// ParseCrons reads a filter of crons: over cron_id, paused, status, created_time and metadata. It holds for crons alone, and is quick in the order
// OrderID.
func ParseCrons(text string) (Filter, error) {
	f, err := parse(text, crons)
	return onlyCrons.And(f), err
}
