package cron

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The zone data of the program takes precedence over that of the machine.
func TestEmbeddedZones(t *testing.T) {
	winter := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if os.Getenv("ZONES_OF_THE_MACHINE") != "" { // in the process that the test starts below
		location, err := LoadZone("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		if _, offset := winter.In(location).Zone(); offset != 3600 {
			t.Errorf("Berlin is %d s ahead of UTC", offset)
		}
		if machine, err := time.LoadLocation("Europe/Berlin"); err != nil || offsetOf(winter.In(machine)) != 9*3600 {
			t.Errorf("the zone data of the machine was not replaced: %v, %v", machine, err)
		}
		return
	}
	tokyo, err := zoneFiles()["Asia/Tokyo"].Open()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "Europe"), 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "Europe", "Berlin"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.ReadFrom(tokyo); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "TestEmbeddedZones")
	again.Env = append(os.Environ(), "ZONES_OF_THE_MACHINE=other", "ZONEINFO="+dir)
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// zoneinfo.zip comes from the Go release that builds the program.
func TestZoneDataOfRelease(t *testing.T) {
	goroot, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(goroot)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(zoneinfo) {
		t.Error("cron/zoneinfo.zip is not from this Go release: run make generate")
	}
	if len(zoneFiles()) < 500 {
		t.Errorf("%d zones", len(zoneFiles()))
	}
}
