// Package docs contains the parts of the documentation that the program serves.
package docs
