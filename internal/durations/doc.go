// Package durations formats durations for people.
package durations
