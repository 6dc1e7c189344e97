package port

import (
	"context"
	"crypto/subtle"
	"errors"
	"strings"

	"google.golang.org/grpc/metadata"
)

// KillRight is the right to end a process through a port: for callers that have
// the token or, if there is none, for callers on this machine.
type KillRight struct {
	Token    string
	Loopback bool // only this machine reaches the port
}

// Errors of Check.
var (
	ErrKillOff   = errors.New("kill is off, because other machines can reach this port: start the server with --kill_token, or bind the server to loopback")
	ErrKillToken = errors.New("kill needs the token of --kill_token, as the header \"Authorization: Bearer TOKEN\"")
)

const bearer = "Bearer "

// Check judges the authorization header of a caller.
func (k KillRight) Check(authorization string) error {
	if k.Token == "" {
		if k.Loopback {
			return nil
		}
		return ErrKillOff
	}
	given, _ := strings.CutPrefix(authorization, bearer)
	if subtle.ConstantTimeCompare([]byte(given), []byte(k.Token)) != 1 {
		return ErrKillToken
	}
	return nil
}

// CheckCall judges the caller of a gRPC method.
func (k KillRight) CheckCall(ctx context.Context) error {
	return k.Check(strings.Join(metadata.ValueFromIncomingContext(ctx, "authorization"), ""))
}

// WithToken adds the token, if there is one, to a call.
func WithToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", bearer+token)
}
