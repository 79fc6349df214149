package cron

import (
	"testing"
	"time"
)

func BenchmarkNext(b *testing.B) {
	for _, bench := range []struct {
		name string
		spec Spec
	}{
		{"quarters UTC", Spec{Expressions: []string{"*/15 * * * *"}}},
		{"working days Berlin", Spec{Expressions: []string{"0 9 * * MON-FRI"}, Timezone: "Europe/Berlin"}},
		{"seconds", Spec{Expressions: []string{"*/5 * * * * *"}, Timezone: "America/New_York"}},
		{"last weekday", Spec{Expressions: []string{"0 9 LW * *"}, Timezone: "Europe/Berlin"}},
		{"every 90s", Spec{Expressions: []string{"@every 90s"}}},
		{"29 February", Spec{Expressions: []string{"0 0 29 2 *"}, Timezone: "Europe/Berlin"}},
		{"union of three, two exclusions",
			Spec{Expressions: []string{"0 9 * * *", "0 12 L * *", "30 17 * * FRI"}, Timezone: "Europe/Berlin",
				Exclude: []string{"* * 24-26 12 *", "* 0-8 * * *"}}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			s := compile(b, bench.spec)
			at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
			end := at.AddDate(50, 0, 0)
			b.ReportAllocs()
			from := at
			for b.Loop() {
				next, ok := s.Next(from)
				if !ok {
					b.Fatal("no next fire")
				}
				if from = next; from.After(end) {
					from = at
				}
			}
		})
	}
}

func BenchmarkBetween(b *testing.B) {
	s := compile(b, Spec{Expressions: []string{"* * * * * *"}, Timezone: "Europe/Berlin"})
	from := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for b.Loop() {
		if n := s.Count(from, from.Add(24*time.Hour), 1e6); n != 24*60*60 {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(24*60*60), "ns/fire")
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		compile(b, Spec{Expressions: []string{"0 9 * * MON-FRI"}, Timezone: "Europe/Berlin"})
	}
}
