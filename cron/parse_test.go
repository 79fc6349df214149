package cron

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

// All texts in a list are spellings of the same expression.
func TestParseSpellings(t *testing.T) {
	for _, same := range [][]string{
		{"0 9 * * 1-5", "0 0 9 * * MON-FRI", " 0  9\t* * mon-fri ", "0 9 ? * 1,2,3,4,5", "0 9 * * 1-4,FRI"},
		{"0 0 1 1 *", "@yearly", "@ANNUALLY", "0 0 0 1 JAN ?"},
		{"0 0 1 * *", "@monthly"},
		{"0 0 * * 0", "@weekly", "0 0 * * 7", "0 0 * * SUN", "0 0 * * sun"},
		{"0 0 * * *", "@daily", "@midnight"},
		{"*/15 * * * *", "0-59/15 * * * *", "0/15 * * * *", "0,15,30,45 */1 * * *"},
		{"0 0 * * 5-7", "0 0 * * FRI-SUN", "0 0 * * 5,6,0"},
		{"0 9 * * 5L", "0 9 * * friL"},
		{"0 9 * * 0#2", "0 9 * * 7#2", "0 9 * * SUN#2"},
		{"0 9 L-0 * *", "0 9 L * *"},
	} {
		first, err := Parse(same[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range same[1:] {
			e, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if e.fields != first.fields {
				t.Errorf("%s and %s: got %+v and %+v, want the same", same[0], text, first.fields, e.fields)
			}
		}
	}
}

// An error has the field, the position of the invalid part and its cause.
func TestParseErrors(t *testing.T) {
	for _, test := range []struct {
		text  string
		field string
		at    int
		want  string
	}{
		{"", "", 1, "the fields are missing: write five, as in 30 9 * * MON-FRI"},
		{"  ", "", 3, "the fields are missing: write five, as in 30 9 * * MON-FRI"},
		{"* * * *", "", 8, "it has 4 fields: write five (minute hour day month weekday), or six with seconds first"},
		{"* * * * * * 2024", "", 13, "it has seven fields: a year is not supported, use start_time and end_time"},
		{"* * * * * * * *", "", 16,
			"it has 8 fields: write five (minute hour day month weekday), or six with seconds first"},
		{"60 * * * *", "minute", 1, `"60" is not a value from 0 to 59`},
		{"0 24 * * *", "hour", 3, `"24" is not a value from 0 to 23`},
		{"0 1,2,99 * * *", "hour", 7, `"99" is not a value from 0 to 23`},
		{"0 0 0 * *", "day of month", 5, `"0" is not a value from 1 to 31`},
		{"0 0 1 13 *", "month", 7, `"13" is not a value from 1 to 12 or JAN to DEC`},
		{"0 0 1 FOO *", "month", 7, `"FOO" is not a value from 1 to 12 or JAN to DEC`},
		{"0 0 * * 8", "day of week", 9, `"8" is not a value from 0 to 7 or SUN to SAT`},
		{"0 0 * * MONDAY", "day of week", 9, `"MONDAY" is not a value from 0 to 7 or SUN to SAT`},
		{"0 22-2 * * *", "hour", 3, "the range 22-2 runs backwards: write 22-23,0-2"},
		{"0 0 * * FRI-MON", "day of week", 9, "the range FRI-MON runs backwards: write FRI-6,0-MON"},
		{"*/0 * * * *", "minute", 1, `the step "0" is not a number from 1 to 59`},
		{"*/60 * * * *", "minute", 1, `the step "60" is not a number from 1 to 59`},
		{"*/x * * * *", "minute", 1, `the step "X" is not a number from 1 to 59`},
		{"1,,2 * * * *", "minute", 3, "a value is missing: use 0 to 59"},
		{"1- * * * *", "minute", 1, "a value is missing: use 0 to 59"},
		{"-5 * * * *", "minute", 1, "a value is missing: use 0 to 59"},
		{"+5 * * * *", "minute", 1, `"+5" is not a value from 0 to 59`},
		{"1-2-3 * * * *", "minute", 1, `"2-3" is not a value from 0 to 59`},
		{"1/2/3 * * * *", "minute", 1, `the step "2/3" is not a number from 1 to 59`},
		{"? * * * *", "minute", 1, "? is allowed only for the day of month or the day of week: write *"},
		{"0 0 L-31 * *", "day of month", 5, `"L-31": L- needs a number from 0 to 30, as in L-3`},
		{"0 0 W * *", "day of month", 5,
			`"W": W needs one day or L before it, as in 15W or LW: a value is missing: use 1 to 31`},
		{"0 0 1-5W * *", "day of month", 5,
			`"1-5W": W needs one day or L before it, as in 15W or LW: "1-5" is not a value from 1 to 31`},
		{"0 0 ? * L", "day of week", 9, `"L" needs a day of the week: write SATL or 6L for the last Saturday`},
		{"0 0 ? * MON#6", "day of week", 9, `"MON#6": # needs a number from 1 to 5 after it, as in FRI#3`},
		{"0 0 ? * #2", "day of week", 9, `"#2": a value is missing: use 0 to 7 or SUN to SAT`},
		{"0 0 ? * 1-2L", "day of week", 9,
			`"1-2L": L needs one day before it, as in 5L or FRIL: "1-2" is not a value from 0 to 7 or SUN to SAT`},
		{"@never", "", 1, `"@never" is not @yearly, @monthly, @weekly, @daily, @hourly or @every 90s`},
		{"@reboot", "", 1, `"@reboot" is not @yearly, @monthly, @weekly, @daily, @hourly or @every 90s`},
		{"@daily 5", "", 8, "unexpected text after @daily"},
		{"@every", "", 1, "@every takes one interval, as in @every 90s or @every 1h30m"},
		{"@every 1d", "interval", 8, `"1d" is not an interval such as 90s, 15m or 24h`},
		{"@every 1500ms", "interval", 8, "1500ms is not a whole number of seconds"},
		{"@every -1h", "interval", 8, "-1h is not between 1s and 876000h0m0s"},
		{"TZ=", "time zone", 1, `"" is not an IANA name such as Europe/Berlin or UTC`},
		{"TZ=0", "time zone", 1, `"0" is not an IANA name such as Europe/Berlin or UTC`},
		{"TZ=TZ=TZ=", "time zone", 1, `"TZ=TZ=" is not an IANA name such as Europe/Berlin or UTC`},
		{"CRON_TZ=Local @daily", "time zone", 1, `"Local" is not an IANA name such as Europe/Berlin or UTC`},
		{"CRON_TZ=UTC", "", 12, "the fields are missing: write five, as in 30 9 * * MON-FRI"},
	} {
		_, err := Parse(test.text)
		var wrong *ParseError
		if !errors.As(err, &wrong) {
			t.Errorf("%q: got %v, want a ParseError", test.text, err)
			continue
		}
		if want := (ParseError{test.text, test.field, test.at, test.want}); *wrong != want {
			t.Errorf("%q:\ngot  %+v\nwant %+v", test.text, *wrong, want)
		}
	}
	for text, want := range map[string]string{
		"0 24 * * *": `"0 24 * * *": hour (character 3): "24" is not a value from 0 to 23`,
		"0 24":       `"0 24": it has 2 fields: write five (minute hour day month weekday), or six with seconds first`,
	} {
		if _, err := Parse(text); err.Error() != want {
			t.Errorf("got %s, want %s", err, want)
		}
	}
}

// The parser handles any text without a panic. The canonical text of a parsed expression parses to
// the same expression.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"*/15 * * * *", "0 0 9 15W,L-3,LW 1-6/2 FRI#3,5L",
		"CRON_TZ=Europe/Berlin @every 1h30m", "@yearly", "TZ=TZ=",
		"0 22-2 * * *", "1,,2 ? L W #", "5/15 7-7 * jan ?", "* * * * * * *"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			if e.String() != "" || strings.TrimSpace(err.Error()) == "" {
				t.Fatalf("%q: got %v and %v", text, e, err)
			}
			return
		}
		again, err := Parse(e.String())
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Fatalf("%q prints as %q: got %+v, %v, want %+v", text, e, again, err, e)
		}
		if schedule, err := Compile(Spec{Expressions: []string{text}}); err == nil {
			fire, ok := schedule.Next(at("2024-02-29 23:59:59"))
			if back, found := schedule.Prev(fire.Add(1)); ok && (!found || !back.Equal(fire)) {
				t.Fatalf("%q: next is %s, but before it comes %s", text, fire, back)
			}
		}
	})
}
