package spelling

import "slices"

// Nearest returns the first of the known names with the smallest distance to a name.
func Nearest(name string, known []string) string {
	return slices.MinFunc(known, func(a, b string) int { return Distance(name, a) - Distance(name, b) })
}

// Distance returns the number of bytes to insert, delete or replace to turn one name into the
// other.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Similar returns the known name that was probably meant by a misspelled one: the nearest name if
// at most a third of the letters differ or two letters are swapped, or else a name that begins like
// it. It returns "" if there is no such name.
func Similar(name string, known []string) string {
	if len(known) == 0 || len(name) < 2 {
		return ""
	}
	nearest := Nearest(name, known)
	distance := Distance(name, nearest)
	if distance <= max(1, len(name)/3) || distance == 2 && sorted(name) == sorted(nearest) {
		return nearest
	}
	best, longest := "", 0
	for _, k := range known {
		common := commonPrefix(name, k)
		if common > longest && (common == len(name) || 3*common >= 2*len(k)) {
			best, longest = k, common
		}
	}
	return best
}

// sorted returns the letters of a name in alphabetical order.
func sorted(name string) string {
	letters := []byte(name)
	slices.Sort(letters)
	return string(letters)
}

// commonPrefix returns the number of bytes with which both names begin.
func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
