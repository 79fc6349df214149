package flow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/progressor-engine/progressor/internal/spelling"
)

// set is a set of step indexes.
type set []uint64

func newSet(n int) set { return make(set, (n+63)/64) }

func (s set) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s set) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }
func (s set) addAll(o set) {
	for i := range o {
		s[i] |= o[i]
	}
}

// link connects the steps. In a linear template, each step depends on the previous one. In a graph,
// depends_on lists the dependencies.
func (c *compiler) link() {
	steps := c.template.Steps
	for i := range steps {
		s := &steps[i]
		given := s.Source.GetDependsOn()
		if c.template.Linear {
			if len(given) > 0 {
				c.add(s.path("depends_on"),
					"is not allowed with step_order LINEAR, where each step follows the previous one: remove it, or "+
						"set step_order: GRAPH")
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
				c.add(path, "repeats %s", id)
			default:
				s.DependsOn = append(s.DependsOn, on)
			}
		}
	}
	for i := range steps {
		for _, on := range steps[i].DependsOn {
			steps[on].Dependents = append(steps[on].Dependents, i)
		}
	}
	c.order()
}

// order computes for each step which steps come before it. It reports cycles as problems.
func (c *compiler) order() {
	steps := c.template.Steps
	open := make([]int, len(steps)) // number of dependencies that are not ordered yet
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
		for _, next := range steps[i].Dependents {
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

// cycles reports cycles among the steps that never become ready. It searches their dependencies
// depth-first, and reports one cycle for each dependency on a step of the current path.
func (c *compiler) cycles(open []int) {
	steps := c.template.Steps
	const unseen, entered, left = 0, 1, 2
	state := make([]int, len(steps))
	for start := range steps {
		if open[start] == 0 || state[start] != unseen {
			continue
		}
		// An iterative depth-first search, so that 1,000 steps in a row do not need 1,000 nested
		// calls.
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

// cycle reports one cycle, starting from the step that is listed first. In way, each step depends
// on the next.
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
	// The two lists differ if an earlier name is not a step, and the message needs the index in the
	// source.
	given := slices.Index(s.Source.GetDependsOn(), c.template.Steps[s.DependsOn[on]].ID)
	c.add(s.path(fmt.Sprintf("depends_on[%d]", given)), "closes a cycle, %s: remove one of these dependencies",
		strings.Join(ids, " → "))
}

// known returns a hint for an unknown step: the most similar ID, or the IDs that exist.
func (c *compiler) known(id string) string {
	const most = 20 // suggestions per template, because each compares the name with all steps
	steps := c.template.Steps
	best, distance := "", len(id)/3+2
	if c.guesses++; c.guesses > most {
		return "write the id of a step"
	}
	for i := range steps {
		if max(len(id), len(steps[i].ID)) > 64 { // longer than an ID may be
			continue
		}
		if d := spelling.Distance(id, steps[i].ID); d < distance {
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
		ids = append(ids, fmt.Sprintf("… (%d in total)", len(steps)))
	}
	return "the steps are " + strings.Join(ids, ", ")
}
