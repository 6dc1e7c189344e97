package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"
)

// killTokenVariable is where a token is that is not to be seen in a list of
// processes.
const killTokenVariable = "TESTBED_KILL_TOKEN"

// killTokenFlag asks for the token that a caller has to know to kill a server.
func killTokenFlag(cmd *cobra.Command, token *string) {
	cmd.Flags().StringVar(token, "kill_token", "", "what a caller has to know to kill; needed where others than this machine reach the port (default $"+killTokenVariable+")")
	cmd.PreRun = func(*cobra.Command, []string) {
		if *token == "" {
			*token = os.Getenv(killTokenVariable)
		}
	}
}

// server answers on a listener until the context is done.
type server interface {
	Serve(ctx context.Context, l net.Listener) error
}

// serve listens, makes the server that has this address, says it on stdout, and
// serves until the command is interrupted.
func serve(cmd *cobra.Command, bind, hostname string, make func(address string) (server, error)) error {
	var config net.ListenConfig
	l, err := config.Listen(cmd.Context(), "tcp", bind)
	if err != nil {
		return fmt.Errorf("--bind %s: %w", bind, err)
	}
	at := address(l, hostname)
	s, err := make(at)
	if err != nil {
		_ = l.Close()
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), at)
	return s.Serve(cmd.Context(), l)
}

// address is how others reach a listener.
func address(l net.Listener, hostname string) string {
	at := l.Addr().(*net.TCPAddr)
	if hostname == "" {
		hostname = at.IP.String()
		if at.IP.IsUnspecified() {
			hostname = "localhost"
			if name, err := os.Hostname(); err == nil {
				hostname = name
			}
		}
	}
	return "http://" + net.JoinHostPort(hostname, strconv.Itoa(at.Port))
}
