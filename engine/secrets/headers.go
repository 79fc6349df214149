package secrets

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/progressor-engine/progressor/process"
)

// Mask is shown in place of a value that may be secret. A put that contains it keeps the stored
// value.
const Mask = "REDACTED"

const referencePrefix = "${secret:"

var (
	// reference matches a reference within a value.
	reference = regexp.MustCompile(`\$\{secret:([^}]*)\}`)
	// onlyReference matches a value that contains no secret itself: a reference, optionally after
	// the scheme of Authorization.
	onlyReference = regexp.MustCompile(`(?i)^((Bearer|Basic|Token|ApiKey) )?\$\{secret:[a-z0-9_.-]{1,64}\}$`)
	name          = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)
)

// harmless are the headers whose values are not secret, and the prefixes of such headers.
var (
	harmless         = []string{"Accept", "Cache-Control", "Host", "Prefer", "User-Agent"}
	harmlessPrefixes = []string{"Accept-", "Content-"}
)

// isSecret reports whether the value of a header must not be shown.
func isSecret(header, value string) bool {
	header = http.CanonicalHeaderKey(header)
	return value != "" && !onlyReference.MatchString(value) && !slices.Contains(harmless, header) &&
		!slices.ContainsFunc(harmlessPrefixes, func(p string) bool { return strings.HasPrefix(header, p) })
}

// Masked returns headers with Mask in place of values that must not be shown.
func Masked(headers map[string]string) map[string]string {
	shown := maps.Clone(headers)
	for header, value := range shown {
		if isSecret(header, value) {
			shown[header] = Mask
		}
	}
	return shown
}

func invalid(field, header, message string, args ...any) error {
	return &process.InvalidError{
		Field: field + "[" + strconv.Quote(header) + "]", Message: fmt.Sprintf(message, args...),
	}
}

// CheckHeaders validates the references in headers that a client has sent. field is the name of
// their field. The errors contain no values.
func CheckHeaders(field string, headers map[string]string) error {
	for header, value := range headers {
		if err := CheckValue(value); err != nil {
			return invalid(field, header, "%s", err)
		}
	}
	return nil
}

// CheckValue validates the references in a value that a client has sent. The error does not contain
// the value.
func CheckValue(value string) error {
	if strings.Contains(value, sealedPrefix) {
		return unusable("must not contain %s", sealedPrefix)
	}
	for _, found := range reference.FindAllStringSubmatch(value, -1) {
		if !name.MatchString(found[1]) {
			return unusable("a reference must be ${secret:NAME}, where NAME is 1 to 64 characters of a-z, A-Z, " +
				"0-9, _, . and -")
		}
	}
	if strings.Count(value, referencePrefix) != len(reference.FindAllString(value, -1)) {
		return unusable("a reference must end with }, as in ${secret:NAME}")
	}
	return nil
}

// HasReference reports whether a value refers to a secret.
func HasReference(value string) bool { return reference.MatchString(value) }

// KeepStored replaces each Mask in wanted with the stored value of the header. If sameTarget is
// false, the target of the requests has changed, and the client must send the values again.
// Otherwise, a client could change a URL to receive values that it cannot read.
func KeepStored(field string, wanted, stored map[string]string, sameTarget bool) error {
	for header, value := range wanted {
		if value != Mask || !isSecret(header, value) {
			continue
		}
		before, ok := stored[header]
		for other, v := range stored {
			if !ok && strings.EqualFold(other, header) {
				before, ok = v, true
				break
			}
		}
		switch {
		case !ok:
			return invalid(field, header, "%s keeps a stored value, and there is none: set the value", Mask)
		case !sameTarget:
			return invalid(field, header,
				"%s keeps the stored value only for the same hosts and CAs: set the value, or use ${secret:NAME}", Mask)
		}
		wanted[header] = before
	}
	return nil
}
