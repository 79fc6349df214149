package cli

import progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"

// TargetTLS returns the TLS settings of a target, or nil if there are none. flag is the name of the
// flag with the file of authorities.
func (a *App) TargetTLS(flag, file, certificateSecret string) (*progressorv1.TargetTls, error) {
	if file == "" && certificateSecret == "" {
		return nil, nil
	}
	t := &progressorv1.TargetTls{CertificateSecret: certificateSecret}
	if file != "" {
		text, err := a.ReadFile(flag, file)
		if err != nil {
			return nil, err
		}
		t.CaPem = string(text)
	}
	return t, nil
}
