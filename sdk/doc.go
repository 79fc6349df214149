// Package sdk contains the SDKs for other languages, so that the tests run them from a copy.
package sdk
