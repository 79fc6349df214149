// Package sdk embeds the SDKs for other languages. Tests run them from a copy.
package sdk
