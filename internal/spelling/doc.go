// Package spelling compares names, so that an error can suggest the name that was probably meant.
package spelling
