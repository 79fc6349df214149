package cron

import (
	"slices"
	"testing"
)

// Each case names a defect of another scheduler, from its issue tracker. This scheduler must return
// the correct fire times.
func TestDefectsOfOtherSchedulers(t *testing.T) {
	list := func(s ...string) []string { return s }
	for _, row := range []struct {
		defect string // scheduler, issue and symptom
		spec   Spec
		after  string
		want   []string
	}{
		{"robfig/cron #541, rundeck #6879: a 02:00 job does not run on the night on which the clock goes forward. " +
			"It must fire at the end of the gap",
			Spec{Expressions: list("0 2 * * *"), Timezone: "America/Los_Angeles"}, "2025-03-08 12:00:00",
			list("Sun 2025-03-09 03:00:00 -07", "Mon 2025-03-10 02:00:00 -07")},
		{"robfig/cron #12: a 01:00 job fires repeatedly in the hour that occurs twice. It must fire once",
			Spec{Expressions: list("0 1 * * *"), Timezone: "America/Los_Angeles"}, "2014-11-01 12:00:00",
			list("Sun 2014-11-02 01:00:00 -07", "Mon 2014-11-03 01:00:00 -08")},
		{"robfig/cron #12: an hourly job does not run in a repeated hour. It must fire in each of them",
			Spec{Expressions: list("0 * * * *"), Timezone: "America/Los_Angeles"}, "2014-11-02 00:30:00",
			list("Sun 2014-11-02 01:00:00 -07", "Sun 2014-11-02 01:00:00 -08", "Sun 2014-11-02 02:00:00 -08")},
		{"systemd #8647: a timer that fires every minute does not fire in the hour that occurs twice. " +
			"Here, it must fire every 15 minutes",
			Spec{Expressions: list("*/15 * * * *"), Timezone: "Europe/Berlin"}, "2023-10-29 01:50:00",
			list("Sun 2023-10-29 02:00:00 +02", "Sun 2023-10-29 02:15:00 +02", "Sun 2023-10-29 02:30:00 +02",
				"Sun 2023-10-29 02:45:00 +02",
				"Sun 2023-10-29 02:00:00 +01", "Sun 2023-10-29 02:15:00 +01", "Sun 2023-10-29 02:30:00 +01",
				"Sun 2023-10-29 02:45:00 +01",
				"Sun 2023-10-29 03:00:00 +01")},
		{"systemd #13745: a fire time in the gap loses all fires of the day. Only that one must be lost",
			Spec{Expressions: list("30 2/4 * * *"), Timezone: "Australia/Sydney"}, "2019-10-05 23:00:00",
			list("Sun 2019-10-06 06:30:00 +11", "Sun 2019-10-06 10:30:00 +11")},
		{"systemd #36897: in Dublin, whose winter time counts as daylight saving time, hourly returns the same time",
			Spec{Expressions: list("@hourly"), Timezone: "Europe/Dublin"}, "2025-03-29 22:00:00",
			list("Sat 2025-03-29 23:00:00 +00", "Sun 2025-03-30 00:00:00 +00", "Sun 2025-03-30 02:00:00 +01")},
		{"systemd #22665: the step of the days continues over the end of the month. It must restart on the 1st",
			Spec{Expressions: list("0 4 1/5 * *"), Timezone: "Asia/Seoul"}, "2022-02-28 01:00:00",
			list("Tue 2022-03-01 04:00:00 +09", "Sun 2022-03-06 04:00:00 +09")},
		{"nats-server #8543: a day whose midnight does not exist is skipped",
			Spec{Expressions: list("0 0 1 4 11 *"), Timezone: "America/Sao_Paulo"}, "2018-11-03 23:00:00",
			list("Sun 2018-11-04 01:00:00 -02", "Mon 2019-11-04 01:00:00 -03")},
		{"cron-utils #332, cron-parser #25: the search across a midnight that does not exist never ends",
			Spec{Expressions: list("0 6 * * *"), Timezone: "America/Santiago"}, "2018-08-12 01:59:59",
			list("Sun 2018-08-12 06:00:00 -03", "Mon 2018-08-13 06:00:00 -03")},
		{"croniter in prefect #5957: midnight on Sundays in Santiago becomes Saturday 23:00 repeatedly",
			Spec{Expressions: list("0 0 * * 0"), Timezone: "America/Santiago"}, "2022-08-28 00:00:00",
			list("Sun 2022-09-04 00:00:00 -04", "Sun 2022-09-11 01:00:00 -03", "Sun 2022-09-18 00:00:00 -03")},
		{"node-cron #919: the search for a time in the gap of Lisbon never ends",
			Spec{Expressions: list("0 1 30 3 *"), Timezone: "Europe/Lisbon"}, "2024-11-15 00:00:00",
			list("Sun 2025-03-30 02:00:00 +01", "Mon 2026-03-30 01:00:00 +01")},
		{"croniter #25: the fire on the day after a clock change is an hour off",
			Spec{Expressions: list("0 20 * * *"), Timezone: "Europe/Paris"}, "2022-10-30 00:00:00",
			list("Sun 2022-10-30 20:00:00 +01", "Mon 2022-10-31 20:00:00 +01")},
		{"cronie #217: a search that crosses the start of summer time is an hour late",
			Spec{Expressions: list("* * * */3 *"), Timezone: "America/New_York"}, "2015-02-15 00:00:00",
			list("Wed 2015-04-01 00:00:00 -04")},
		{"cronie #124: entries with CRON_TZ=UTC follow the zone of the machine and are lost when its clock changes",
			Spec{Expressions: list("CRON_TZ=UTC 30 1 * * *"), Timezone: "Europe/London"}, "2022-10-30 00:00:00",
			list("Sun 2022-10-30 01:30:00 +00", "Mon 2022-10-31 01:30:00 +00")},
		{"node-cron #492: a job that runs every 30 seconds stops for a day when the clock changes",
			Spec{Expressions: list("*/30 * * * * *"), Timezone: "America/Chicago"}, "2025-11-02 01:59:00",
			list("Sun 2025-11-02 01:59:30 -05", "Sun 2025-11-02 01:00:00 -06")},
		{"quartznet #2331: 15W is skipped if the 15th is a Saturday",
			Spec{Expressions: list("0 12 15W * ?")}, "2024-05-15 12:00:00", list("Fri 2024-06-14 12:00:00 +00")},
		{"spring #27966, cron-utils #75: 1W is skipped if the 1st is a Saturday or Sunday",
			Spec{Expressions: list("0 0 1W * ?")}, "2021-07-31 00:00:00",
			list("Mon 2021-08-02 00:00:00 +00", "Wed 2021-09-01 00:00:00 +00")},
		{"cron-utils #715: 31W throws in a month of 30 days. Quartz skips the month",
			Spec{Expressions: list("0 0 31W * ?")}, "2025-06-01 00:00:00",
			list("Thu 2025-07-31 00:00:00 +00", "Fri 2025-08-29 00:00:00 +00")},
		{"crontab (Elixir) #132: MON#5 falls on a Saturday of a month that has only four Mondays",
			Spec{Expressions: list("0 9 * * mon#5")}, "2024-10-22 09:00:00", list("Mon 2024-12-30 09:00:00 +00")},
		{"croner #254: SAT#4 also matches the fifth Saturday",
			Spec{Expressions: list("0 0 0 * * 6#4")}, "2024-08-02 00:00:00",
			list("Sat 2024-08-24 00:00:00 +00", "Sat 2024-09-28 00:00:00 +00")},
		{"gocron #660, #555: the last day of the month skips the shorter months",
			Spec{Expressions: list("0 0 L * *")}, "2024-01-31 00:00:00",
			list("Thu 2024-02-29 00:00:00 +00", "Sun 2024-03-31 00:00:00 +00")},
		{"mtdowling/cron-expression #1, netresearch/go-cron: the day fields are ANDed. POSIX ORs them",
			Spec{Expressions: list("0 0 1 1 0")}, "2011-06-15 00:00:00",
			list("Sun 2012-01-01 00:00:00 +00", "Sun 2012-01-08 00:00:00 +00")},
		{"croner #267: 1-31 is treated as *. It restricts, so that a match of either day field is sufficient",
			Spec{Expressions: list("0 0 1-31 * 4")}, "2024-12-01 00:00:00",
			list("Mon 2024-12-02 00:00:00 +00", "Tue 2024-12-03 00:00:00 +00")},
		{"robfig/cron #70: */2 as the day of the month. As in Vixie's cron, a field that begins with * does " +
			"not restrict, so only odd Mondays match",
			Spec{Expressions: list("0 0 */2 * 1")}, "2025-01-01 00:00:00",
			list("Mon 2025-01-13 00:00:00 +00", "Mon 2025-01-27 00:00:00 +00")},
		{"reugn/go-quartz #11: the next Sunday after a Wednesday is a Wednesday",
			Spec{Expressions: list("0 0 0 * * 0")}, "2021-03-10 08:09:04", list("Sun 2021-03-14 00:00:00 +00")},
		{"cron-utils #215: at the end of a month, MON-FRI matches a Saturday",
			Spec{Expressions: list("0 8 ? * MON-FRI")}, "2017-06-30 10:00:00", list("Mon 2017-07-03 08:00:00 +00")},
		{"cron-parser #263: 1-3,5-31 fires on the 4th",
			Spec{Expressions: list("0 0 1-3,5-31 * ?")}, "2022-04-03 00:00:00", list("Tue 2022-04-05 00:00:00 +00")},
		{"croner #284: an expression in UTC follows the summer time of the machine",
			Spec{Expressions: list("0 * * * *")}, "2025-10-05 02:00:00", list("Sun 2025-10-05 03:00:00 +00")},
		{"netresearch/go-cron #147: the clock of Lord Howe changes by half an hour",
			Spec{Expressions: list("15 2 * * *"), Timezone: "Australia/Lord_Howe"}, "2024-10-05 12:00:00",
			list("Sun 2024-10-06 02:30:00 +11", "Mon 2024-10-07 02:15:00 +11")},
		{"Samoa skipped 30 December 2011: a gap can be a whole day",
			Spec{Expressions: list("0 9 * * *"), Timezone: "Pacific/Apia"}, "2011-12-29 09:00:00",
			list("Sat 2011-12-31 00:00:00 +14", "Sat 2011-12-31 09:00:00 +14")},
		{"Kubernetes #42649: after more than 100 missed times, the cron never fires again (see TestCatchUpOfMany)",
			Spec{Expressions: list("* * * * *")}, "2019-08-17 00:00:00", list("Sat 2019-08-17 00:01:00 +00")},
	} {
		if got := firesOf(t, row.spec, row.after, len(row.want)); !slices.Equal(got, row.want) {
			t.Errorf("%s\n%v after %s:\ngot  %v\nwant %v", row.defect, row.spec.Expressions, row.after, got, row.want)
		}
	}
}

// cron-parser #378: prev() across a gap goes back a day too far. croniter #116: it is an hour off.
func TestPrevOverTransitions(t *testing.T) {
	for _, test := range []struct{ zone, expression, before, want string }{
		{"America/New_York", "0 2 * * *", "2020-03-08T03:01:00-04:00", "2020-03-08T03:00:00-04:00"},
		{"America/New_York", "0 2 * * *", "2020-03-08T03:00:00-04:00", "2020-03-07T02:00:00-05:00"},
		{"America/New_York", "0 8 * * 1-5", "2018-11-04T05:00:00-05:00", "2018-11-02T08:00:00-04:00"},
		{"America/New_York", "30 1 * * *", "2018-11-04T01:45:00-05:00", "2018-11-04T01:30:00-04:00"},
		{"America/Sao_Paulo", "0 0 * * *", "2017-10-16T00:59:59.999-02:00", "2017-10-16T00:00:00-02:00"},
		{"America/Sao_Paulo", "0 0 * * *", "2017-10-15T12:00:00-02:00", "2017-10-15T01:00:00-02:00"},
	} {
		s := compile(t, Spec{Expressions: []string{test.expression}, Timezone: test.zone})
		if got, _ := s.Prev(at(test.before)); !got.Equal(at(test.want)) {
			t.Errorf("%s in %s before %s: got %s, want %s", test.expression, test.zone, test.before,
				got.In(s.Location()), test.want)
		}
	}
}

// The daylight-saving policies work as the API documents.
func TestDaylightSaving(t *testing.T) {
	list := func(s ...string) []string { return s }
	for _, test := range []struct {
		name       string
		expression string
		daylight   DaylightSaving
		after      string
		want       []string
	}{
		{"SHIFT: several times in the gap fire once", "0,30 2 * * *", DaylightSaving{Gap: GapShift},
			"2024-03-30 12:00:00",
			list("Sun 2024-03-31 03:00:00 +02", "Mon 2024-04-01 02:00:00 +02")},
		{"SHIFT: a time that fires anyway fires once", "0 2,3 * * *", DaylightSaving{}, "2024-03-30 12:00:00",
			list("Sun 2024-03-31 03:00:00 +02", "Mon 2024-04-01 02:00:00 +02")},
		{"SKIP", "30 2 * * *", DaylightSaving{Gap: GapSkip}, "2024-03-30 12:00:00",
			list("Mon 2024-04-01 02:30:00 +02")},
		{"a fixed hour with a step in the minutes is fixed: Vixie's cron fires it in both hours", "*/30 2 * * *",
			DaylightSaving{}, "2024-10-27 00:00:00",
			list("Sun 2024-10-27 02:00:00 +02", "Sun 2024-10-27 02:30:00 +02", "Mon 2024-10-28 02:00:00 +01")},
		{"FIRST", "30 2 * * *", DaylightSaving{Overlap: OverlapFirst}, "2024-10-27 00:00:00",
			list("Sun 2024-10-27 02:30:00 +02", "Mon 2024-10-28 02:30:00 +01")},
		{"LAST", "30 2 * * *", DaylightSaving{Overlap: OverlapLast}, "2024-10-27 00:00:00",
			list("Sun 2024-10-27 02:30:00 +01", "Mon 2024-10-28 02:30:00 +01")},
		{"BOTH", "30 2 * * *", DaylightSaving{Overlap: OverlapBoth}, "2024-10-27 00:00:00",
			list("Sun 2024-10-27 02:30:00 +02", "Sun 2024-10-27 02:30:00 +01", "Mon 2024-10-28 02:30:00 +01")},
		{"a step in the hours follows real time: 02:00 does not exist", "0 */2 * * *", DaylightSaving{},
			"2024-03-31 00:00:00",
			list("Sun 2024-03-31 04:00:00 +02")},
	} {
		spec := Spec{Expressions: []string{test.expression}, Timezone: "Europe/Berlin", Daylight: test.daylight}
		if got := firesOf(t, spec, test.after, len(test.want)); !slices.Equal(got, test.want) {
			t.Errorf("%s: %s:\ngot  %v\nwant %v", test.name, test.expression, got, test.want)
		}
	}
	// Next finds the second occurrence of a repeated local time from within the first one, although
	// the next such day is a year away.
	rare := compile(t, Spec{Expressions: list("30 2/22 27 10 *"), Timezone: "Europe/Berlin"})
	if next, _ := rare.Next(at("2024-10-27T02:40:00+02:00")); !next.Equal(at("2024-10-27T02:30:00+01:00")) {
		t.Errorf("the second 02:30: got %s", next)
	}
	// @every counts seconds.
	every := Spec{Expressions: list("@every 1h"), Timezone: "Europe/Berlin", Start: at("2024-03-31 00:30")}
	want := list("Sun 2024-03-31 01:30:00 +01", "Sun 2024-03-31 03:30:00 +02", "Sun 2024-03-31 04:30:00 +02")
	if got := firesOf(t, every, "2024-03-31 01:00:00", 3); !slices.Equal(got, want) {
		t.Errorf("@every 1h: got %v, want %v", got, want)
	}
	// An exclusion applies to the local time of the expression, even if the clock skips or repeats
	// it.
	gap := Spec{Expressions: list("30 2 * * *"), Exclude: list("30 2 31 3 *"), Timezone: "Europe/Berlin"}
	if got := firesOf(t, gap, "2024-03-30 12:00:00", 1); got[0] != "Mon 2024-04-01 02:30:00 +02" {
		t.Errorf("an excluded time in the gap: got %v", got)
	}
	twice := Spec{Expressions: list("*/30 * * * *"), Exclude: list("* 2 27 10 *"), Timezone: "Europe/Berlin"}
	if got := firesOf(t, twice, "2024-10-27 01:30:00", 1); got[0] != "Sun 2024-10-27 03:00:00 +01" {
		t.Errorf("an excluded hour that occurs twice: got %v", got)
	}
}
