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
