package search

// CronPrefix is what the ids of the processes of crons begin with.
const CronPrefix = "~cron/"

// crons are processes too: of a row p.
var crons = &table{
	fields: []*field{
		{name: "cron_id", compare: inOrder("p.process_id", "'"+CronPrefix+"' || $?::text"), prefix: "starts_with(p.process_id, '" + CronPrefix + "' || $?::text)"},
		fieldStatus, fieldCreated, fieldMetadata,
	},
	example: `cron_id = "nightly"`, text: "cron_id = ",
}

// onlyCrons holds for crons and nothing else.
var onlyCrons = Filter{&comparison{field: fieldProcessID, operator: equals, value: value{kind: isPrefix, text: CronPrefix}}}

// ParseCrons reads a filter of crons: over cron_id, status, created_time and metadata. It holds for crons alone, and is quick in the order
// OrderID.
func ParseCrons(text string) (Filter, error) {
	f, err := parse(text, crons)
	return onlyCrons.And(f), err
}
