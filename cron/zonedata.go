package cron

import (
	"archive/zip"
	"bytes"
	_ "embed" // embeds zoneinfo
	"io"
	"sync"
	"time"
)

// zoneinfo is the zone data of the Go release that builds the program: lib/time/zoneinfo.zip of
// GOROOT. Package time would read the files of the machine first, and nodes with different files
// would disagree on when a cron fires.
//
//go:embed zoneinfo.zip
var zoneinfo []byte

// zoneFiles maps the names of zones to their files in zoneinfo.
var zoneFiles = sync.OnceValue(func() map[string]*zip.File {
	files := map[string]*zip.File{}
	all, err := zip.NewReader(bytes.NewReader(zoneinfo), int64(len(zoneinfo)))
	if err != nil {
		return files
	}
	for _, f := range all.File {
		files[f.Name] = f
	}
	return files
})

// zones caches loaded zones by name. It has at most one entry for each file.
var zones sync.Map

// embeddedZone loads a zone from zoneinfo. It returns nil if there is no zone with this name.
func embeddedZone(name string) *time.Location {
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location)
	}
	file, ok := zoneFiles()[name]
	if !ok {
		return nil
	}
	r, err := file.Open()
	if err != nil {
		return nil
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return nil
	}
	location, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil
	}
	zones.Store(name, location)
	return location
}
