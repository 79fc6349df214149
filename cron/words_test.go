package cron

import "testing"

func TestWords(t *testing.T) {
	for _, test := range []struct{ expression, want string }{
		{"0 9 LW * *", "at 09:00 on the last weekday of each month"},
		{"0 9 * * *", "at 09:00 every day"},
		{"30 9,17 * * MON-FRI", "at 09:30 and 17:30 on Monday to Friday"},
		{"* * * * *", "every minute"},
		{"*/15 * * * *", "every 15 minutes"},
		{"*/7 * * * *", "at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour"},
		{"@hourly", "every hour"},
		{"30 * * * *", "at minute 30 of every hour"},
		{"0 */2 * * *", "every 2 hours"},
		{"0 9-17 * * *", "every hour from 09:00 to 17:00"},
		{"*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:59 on Monday to Friday"},
		{"*/15 3 * * *", "at 03:00, 03:15, 03:30 and 03:45 every day"},
		{"* 3 * * *", "every minute from 03:00 to 03:59"},
		{"* 3,5 * * *", "every minute in hours 3 and 5"},
		{"0 1,3,4,6,8,9,20 * * *", "at 01:00, 03:00, 04:00, 06:00, 08:00, 09:00 and 20:00 every day"},
		{"* * * * * *", "every second"},
		{"*/10 * * * * *", "every 10 seconds"},
		{"15 30 9 * * *", "at 09:30:15 every day"},
		{"5 * * * * *", "at second 5 of every minute"},
		{"* 5 * * * *", "every second of minute 5 of every hour"},
		{"0,30 5 * * * *", "every 30 seconds of minute 5 of every hour"},
		{"5,6 */2 * * * *", "at seconds 5 and 6 of every 2 minutes"},
		{"0 9 1-7 * ?", "at 09:00 on the 1st to 7th of each month"},
		{"0 9 */2 JAN FRI#1",
			"at 09:00 on the 1st, 3rd, 5th, 7th, 9th, 11th, 13th, 15th, 17th, 19th, 21st, 23rd, 25th, 27th, 29th and " +
				"31st of January, if that is the first Friday of January"},
		{"@yearly", "at 00:00 on the 1st of January"},
		{"@weekly", "at 00:00 on Sunday"},
		{"0 9 1,15 * *", "at 09:00 on the 1st and 15th of each month"},
		{"0 9 L * *", "at 09:00 on the last day of each month"},
		{"0 9 L-1,L-3 * *", "at 09:00 on the last day but one and 3 days before the last day of each month"},
		{"0 9 15W JAN,JUL *", "at 09:00 on the weekday nearest to the 15th of January and July"},
		{"0 9 * * FRI#3", "at 09:00 on the third Friday of each month"},
		{"0 9 * 6-8 5L", "at 09:00 on the last Friday of June to August"},
		{"0 9 13 * FRI", "at 09:00 on the 13th of each month or on Friday"},
		{"0 9 13 10 FRI", "at 09:00 on the 13th of October or on Friday in October"},
		{"0 9 */2 * MON", "at 09:00 on the 1st, 3rd, 5th, 7th, 9th, 11th, 13th, 15th, 17th, 19th, 21st, 23rd, 25th, " +
			"27th, 29th and 31st of each month, if that is Monday"},
		{"0 9 * 12 *", "at 09:00 in December"},
		{"0 9 * 12 SAT,SUN", "at 09:00 on Saturday and Sunday in December"},
		{"@every 90s", "every 1m30s"},
		{"@every 1h", "every 1h"},
		{"@every 90m", "every 1h30m"},
		{"@every 20s", "every 20s"},
		{"@every 10m", "every 10m"},
		{"CRON_TZ=Asia/Tokyo 0 9 * * *", "at 09:00 every day (Asia/Tokyo)"},
	} {
		e, err := Parse(test.expression)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Words(); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.expression, got, test.want)
		}
	}
	s := compile(t, Spec{Expressions: []string{"0 9 LW * *", "0 12 * * SUN"}, Exclude: []string{"* * 24-26 12 *"},
		Timezone: "Europe/Berlin",
		Start:    at("2026-01-01"), End: at("2027-01-01")})
	want := "at 09:00 on the last weekday of each month; and at 12:00 on Sunday; except on the 24th to 26th of " +
		"December, Europe/Berlin, from 2026-01-01T00:00:00Z, until 2027-01-01T00:00:00Z"
	if got := s.Words(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The zone of a schedule is named only if an expression has no zone of its own, or if there are
// exclusions.
func TestWordsOfZones(t *testing.T) {
	for want, spec := range map[string]Spec{
		"at 09:00 every day (Asia/Tokyo)": {
			Expressions: []string{"TZ=Asia/Tokyo 0 9 * * *"}},
		"at 09:00 every day (Asia/Tokyo); and at 10:00 every day, UTC": {
			Expressions: []string{"CRON_TZ=Asia/Tokyo 0 9 * * *", "0 10 * * *"}},
		"at 09:00 every day (Asia/Tokyo); except in December, Europe/Berlin": {
			Expressions: []string{"CRON_TZ=Asia/Tokyo 0 9 * * *"}, Exclude: []string{"* * * 12 *"},
			Timezone: "Europe/Berlin"},
	} {
		s, err := Compile(spec)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Words(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
