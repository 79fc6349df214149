package main

import (
	"regexp"
	"strings"
	"testing"
)

// A reader may follow several tours with the same engine and in the same directory. So no page uses
// a namespace, an ID or a port of another page, and no page leaves files or background processes
// behind.
func TestToursShareNothing(t *testing.T) {
	patterns := map[string]*regexp.Regexp{
		"namespace": regexp.MustCompile(`namespace put (\S+)`),
		"port":      tourPort,
		"process":   regexp.MustCompile(`progressor start (\S+ \S+)`),
		"cron":      regexp.MustCompile(`cron create (\S+ \S+)`),
		"job":       regexp.MustCompile(`job enqueue (\S+) \S+ --id \S+`),
	}
	pages := map[string]string{} // pages by the names and ports that they use
	background, ended := regexp.MustCompile(`(?m)[^&]&$`), regexp.MustCompile(`(?m)^kill (?:-9 )?(%|\$\(jobs )`)
	file := regexp.MustCompile(`cat > (\S+)`)
	for _, page := range touredPages {
		starts, ends := 0, 0
		for _, b := range tourBlocks(readPage(t, page)) {
			if b.language != "sh" {
				continue
			}
			starts += len(background.FindAllString(b.commands, -1))
			ends += len(ended.FindAllString(b.commands, -1))
			for kind, pattern := range patterns {
				for _, m := range pattern.FindAllStringSubmatch(b.commands, -1) {
					used := kind + " " + m[1]
					if other := pages[used]; other != "" && other != page {
						t.Errorf("%s: %s also uses it", page+": "+used, other)
					}
					pages[used] = page
				}
			}
			for _, m := range file.FindAllStringSubmatch(b.commands, -1) {
				if !strings.HasPrefix(m[1], ".progressor/") {
					t.Errorf("%s leaves %s in the directory: write below .progressor, which git ignores", page,
						m[1])
				}
			}
		}
		if starts != ends {
			t.Errorf("%s starts %d programs in the background and ends %d", page, starts, ends)
		}
	}
	if len(pages) < 10 {
		t.Errorf("only %d names found: %v", len(pages), pages)
	}
}
