package insight

import (
	"testing"
	"time"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/insight"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	same := [][]string{
		{"order A-9: the goods broke", "order B-1234: the goods broke", "order 7: the goods broke",
			"order ab_7f: the goods broke"},
		{"dial tcp 10.0.0.1:5432: connect: refused", "dial tcp 10.77.0.12:80: connect: refused"},
		{"id 3f2b8c1a-0d4e-4f6a-9b1c-2d3e4f5a6b7c gone", "id 00000000-0000-4000-8000-000000000001 gone"},
		{`no "tea" left`, `no "broken cake" left`, `no "" left`}, {"GET /orders/17 failed", "GET /orders/18 failed"},
		{"größe 7€", "größe 8€"}, {"timeout", "timeout"}, {"", ""},
	}
	seen := map[string]string{}
	for _, messages := range same {
		mark := fingerprint("r", messages[0])
		if other, ok := seen[mark]; ok {
			t.Errorf("%q has the fingerprint of %q", messages[0], other)
		}
		seen[mark] = messages[0]
		for _, m := range messages {
			if fingerprint("r", m) != mark {
				t.Errorf("%q and %q have different fingerprints", m, messages[0])
			}
			if fingerprint("s", m) == mark {
				t.Errorf("%q: the reason does not count", m)
			}
		}
	}
	for _, differ := range [][2]string{{"no tea", "no cake"}, {"order 1: broke", "customer 1: broke"}, {"a", ""}} {
		if fingerprint("r", differ[0]) == fingerprint("r", differ[1]) {
			t.Errorf("%q and %q have the same fingerprint", differ[0], differ[1])
		}
	}
}

func TestGroupErrors(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var broken []insight.Broken
	for n, detail := range []string{
		"order 1: gone", "öä 1", "öü 2", `say "hi*\"`, "order 27: gone", "7 is odd", "order 3: gone", "8 is odd",
		`say "hi*\"`, "",
	} {
		broken = append(broken, insight.Broken{
			Detail: detail, Reason: "r", ErrorTime: noon.Add(-time.Duration(n) * time.Minute),
		})
	}
	broken = append(broken, insight.Broken{Detail: "a long story", Cut: true, Reason: "r", ErrorTime: noon})
	groups := groupErrors(broken)
	byMessage := map[string]*progressorv1.ErrorGroup{}
	for _, g := range groups {
		byMessage[g.GetMessage()] = g
	}
	for message, want := range map[string]struct {
		count  int64
		filter string
	}{
		"order 1: gone": {3, `status = ERROR AND detail = "order *"`},
		"öä 1":          {1, `status = ERROR AND detail = "öä 1"`},
		`say "hi*\"`:    {2, `status = ERROR AND detail = "say \"hi\*\\\""`},
		"7 is odd":      {2, `status = ERROR`},
		"":              {1, `status = ERROR`},
		"a long story":  {1, `status = ERROR AND detail = "a long story*"`},
	} {
		if g := byMessage[message]; g.GetCount() != want.count || g.GetFilter() != want.filter {
			t.Errorf("%q: %v, want %+v", message, g, want)
		}
	}
	g := groups[0]
	if g.GetMessage() != "order 1: gone" || !g.GetLastTime().AsTime().Equal(noon) ||
		!g.GetFirstTime().AsTime().Equal(noon.Add(-6*time.Minute)) {
		t.Errorf("the first group is %v", g)
	}
	split := groupErrors([]insight.Broken{
		{Namespace: "b", Detail: "x 1"}, {Namespace: "a", Detail: "x 2"}, {Namespace: "b", Detail: "x 3"},
	})
	if len(split) != 2 || split[0].GetNamespace() != "b" || split[0].GetCount() != 2 ||
		split[1].GetNamespace() != "a" || split[1].GetFilter() != `status = ERROR AND detail = "x 2"` {
		t.Errorf("one failure in two namespaces: %v", split)
	}
	half := groupErrors([]insight.Broken{{Detail: "xä 1"}, {Detail: "xü 1"}, {Detail: "xä 2"}})
	for _, g := range half {
		if g.GetFilter() != `status = ERROR AND detail = "xä *"` &&
			g.GetFilter() != `status = ERROR AND detail = "xü 1"` {
			t.Errorf("%v", g)
		}
	}
	whole := &errorGroup{common: "aä", whole: true, message: &progressorv1.ErrorGroup{}}
	if whole.add(&insight.Broken{Detail: "aü"}); whole.common != "a" || whole.whole {
		t.Errorf("common prefix: %q", whole.common)
	}
}
