package flow

import (
	"fmt"
	"slices"
	"strings"
)

// set is a set of steps by their indexes.
type set []uint64

func newSet(n int) set { return make(set, (n+63)/64) }

func (s set) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s set) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }
func (s set) addAll(o set) {
	for i := range o {
		s[i] |= o[i]
	}
}

// link connects the steps: in a line each depends on the one before, in a graph as depends_on says.
func (c *compiler) link() {
	steps := c.template.Steps
	for i := range steps {
		s := &steps[i]
		given := s.Source.GetDependsOn()
		if c.template.Linear {
			if len(given) > 0 {
				c.add(s.path("depends_on"), "is refused where step_order is LINEAR, in which each step follows the one before: leave it out, or set step_order: GRAPH")
			}
			if i > 0 {
				s.DependsOn = []int{i - 1}
			}
			continue
		}
		for n, id := range given {
			path := s.path(fmt.Sprintf("depends_on[%d]", n))
			on, ok := c.template.byID[id]
			switch {
			case !ok:
				c.add(path, "there is no step %.100q; %s", id, c.known(id))
			case slices.Contains(s.DependsOn, on):
				c.add(path, "names %s a second time", id)
			default:
				s.DependsOn = append(s.DependsOn, on)
			}
		}
	}
	for i := range steps {
		for _, on := range steps[i].DependsOn {
			steps[on].Dependants = append(steps[on].Dependants, i)
		}
	}
	c.order()
}

// order finds for each step which ones come before it. A cycle is a problem, written out once.
func (c *compiler) order() {
	steps := c.template.Steps
	open := make([]int, len(steps)) // of the steps that it depends on
	var ready []int
	for i := range steps {
		if open[i] = len(steps[i].DependsOn); open[i] == 0 {
			ready = append(ready, i)
		}
	}
	c.before = make([]set, len(steps))
	for i := range steps {
		c.before[i] = newSet(len(steps))
	}
	done := 0
	for ; len(ready) > 0; done++ {
		i := ready[0]
		ready = ready[1:]
		for _, on := range steps[i].DependsOn {
			c.before[i].add(on)
			c.before[i].addAll(c.before[on])
		}
		for _, next := range steps[i].Dependants {
			if open[next]--; open[next] == 0 {
				ready = append(ready, next)
			}
		}
	}
	if done < len(steps) {
		c.before = nil
		c.cycles(open)
	}
}

// cycles tells of the cycles among the steps that never become ready: one through each of them that is not in one told before.
func (c *compiler) cycles(open []int) {
	steps := c.template.Steps
	const unseen, entered, left = 0, 1, 2
	state := make([]int, len(steps))
	for start := range steps {
		if open[start] == 0 || state[start] != unseen {
			continue
		}
		// A walk in depth, by hand: 1,000 steps in a row are no reason for 1,000 calls.
		way, next := []int{start}, []int{0}
		state[start] = entered
		for len(way) > 0 {
			i := way[len(way)-1]
			n := next[len(next)-1]
			if n == len(steps[i].DependsOn) {
				state[i] = left
				way, next = way[:len(way)-1], next[:len(next)-1]
				continue
			}
			next[len(next)-1]++
			switch on := steps[i].DependsOn[n]; {
			case open[on] == 0 || state[on] == left:
			case state[on] == entered:
				c.cycle(way[slices.Index(way, on):])
			default:
				state[on] = entered
				way, next = append(way, on), append(next, 0)
			}
		}
	}
}

// cycle tells of one, from its first step as listed on. way goes from each step to one that it depends on.
func (c *compiler) cycle(way []int) {
	first := slices.Index(way, slices.Min(way))
	ids := make([]string, 0, len(way)+1)
	for i := range len(way) + 1 {
		ids = append(ids, c.template.Steps[way[(first+i)%len(way)]].ID)
	}
	if len(ids) > 12 {
		ids = slices.Concat(ids[:6], []string{"…"}, ids[len(ids)-6:])
	}
	s := &c.template.Steps[way[first]]
	on := slices.Index(s.DependsOn, way[(first+1)%len(way)])
	// Where a name before it is no step the two lists differ; then the index is that of the name.
	given := slices.Index(s.Source.GetDependsOn(), c.template.Steps[s.DependsOn[on]].ID)
	c.add(s.path(fmt.Sprintf("depends_on[%d]", given)), "closes a cycle, %s, in which each waits for the next: take one of these dependencies out", strings.Join(ids, " → "))
}

// known names the steps that there are, or the one that was meant.
func (c *compiler) known(id string) string {
	const most = 20 // suggestions in one answer: each is compared with all steps
	steps := c.template.Steps
	best, distance := "", len(id)/3+2
	if c.guesses++; c.guesses > most {
		return "write the id of a step"
	}
	for i := range steps {
		if d := editDistance(id, steps[i].ID, distance); d < distance {
			best, distance = steps[i].ID, d
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	var ids []string
	for i := range steps[:min(len(steps), 10)] {
		ids = append(ids, steps[i].ID)
	}
	if len(steps) > 10 {
		ids = append(ids, fmt.Sprintf("… (%d in all)", len(steps)))
	}
	return "there are " + strings.Join(ids, ", ")
}

// editDistance is Levenshtein's, or limit where it is not below.
func editDistance(a, b string, limit int) int {
	if len(a) > 64 || len(b) > 64 || max(len(a)-len(b), len(b)-len(a)) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, diagonal+1, row[j]+1)
		}
	}
	return min(row[len(b)], limit)
}
