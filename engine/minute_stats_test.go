package engine

import (
	"testing"
	"time"
)

func TestMinuteStats(t *testing.T) {
	t.Parallel()
	began := time.Now()
	m := newMinuteStats(began)
	at := func(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }
	if p := m.report(at(0), true); p.TasksPerSecond != 0 || p.TimerLateness >= 0 || !p.Draining {
		t.Errorf("at first %+v", p)
	}
	for n := range 200 {
		m.stored(at(10 + float64(n%10)))
		late := 3 * time.Millisecond
		if n == 7 || n == 8 {
			late = 7 * time.Second // 1%, which does not count
		}
		m.timer(at(10), late)
	}
	if p := m.report(at(20), false); p.TasksPerSecond != 10 || p.TimerLateness < 3*time.Millisecond ||
		p.TimerLateness > 5*time.Millisecond {
		t.Errorf("200 tasks in 20 s: %+v", p)
	}
	m.timer(at(20), time.Minute)
	if p := m.report(at(60), false); p.TasksPerSecond != 200.0/60 || p.TimerLateness < 7*time.Second ||
		p.TimerLateness > 10*time.Second {
		t.Errorf("with another late timer: %+v", p)
	}
	if p := m.report(at(75), false); p.TasksPerSecond != 80.0/60 || p.TimerLateness < time.Minute {
		t.Errorf("after half a minute: %+v", p)
	}
	m.timer(at(80), time.Hour)
	if p := m.report(at(80), false); p.TasksPerSecond != 0 || p.TimerLateness < 10*time.Minute {
		t.Errorf("beyond the last bound: %+v", p)
	}
	for n := range 100 {
		m.processed(at(200), time.Duration(n+1)*10*time.Millisecond)
	}
	if p50, p99 := m.processing(at(201)); p50 < 500*time.Millisecond || p50 > 710*time.Millisecond ||
		p99 < 990*time.Millisecond || p99 > 1400*time.Millisecond {
		t.Errorf("tasks of 10 ms to 1 s: %s, %s", p50, p99)
	}
	if p50, p99 := m.processing(at(260)); p50 != -1 || p99 != -1 {
		t.Errorf("a minute after them: %s, %s", p50, p99)
	}
	if p := m.report(at(1000), false); p.TasksPerSecond != 0 || p.TimerLateness >= 0 {
		t.Errorf("long after %+v", p)
	}
}
