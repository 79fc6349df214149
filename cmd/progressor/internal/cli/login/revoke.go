package login

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
)

// Revoke asks the issuer to revoke the refresh token (RFC 7009). supported is false if the issuer
// does not revoke tokens.
func (l Login) Revoke(ctx context.Context) (supported bool, err error) {
	if l.Refresh == "" {
		return true, nil
	}
	client, err := l.client()
	if err != nil {
		return false, err
	}
	found, err := l.discover(oidc.ClientContext(ctx, client))
	if err != nil {
		return false, err
	}
	if found.revocation == "" {
		return false, nil
	}
	form := url.Values{"token": {l.Refresh}, "token_type_hint": {"refresh_token"}, "client_id": {l.ClientID}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, found.revocation, strings.NewReader(form.Encode()))
	if err != nil {
		return true, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := client.Do(request)
	if err != nil {
		return true, l.requestError("does not revoke the refresh token", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return true, fmt.Errorf("issuer %s does not revoke the refresh token: status %d", l.URL, response.StatusCode)
	}
	return true, nil
}
