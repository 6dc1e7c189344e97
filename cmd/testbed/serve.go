package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// killTokenVariable is the environment variable for a token that must not show
// in a list of processes.
const killTokenVariable = "TESTBED_KILL_TOKEN"

// killTokenFlag asks for the token that allows a caller to kill a server.
func killTokenFlag(cmd *cobra.Command, token *string) {
	cmd.Flags().StringVar(token, "kill_token", "", "token that the request Kill must contain; required if other machines can reach the port (default $"+killTokenVariable+")")
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

// serve listens, makes the server with this address, prints the address on
// stdout, and serves until the command is interrupted.
func serve(cmd *cobra.Command, bind, hostname string, make func(address string) (server, error)) error {
	var config net.ListenConfig
	l, err := config.Listen(cmd.Context(), "tcp", bind)
	if err != nil {
		if op, is := errors.AsType[*net.OpError](err); is {
			err = op.Err // without the address
		}
		return fmt.Errorf("listening on --bind %s: %w; name another address or port", bind, err)
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

// address is the address at which others reach a listener.
func address(l net.Listener, hostname string) string {
	at := l.Addr().(*net.TCPAddr)
	if hostname == "" {
		hostname = at.IP.String()
		if at.IP.IsUnspecified() {
			hostname = ownName(at.IP.To4() != nil)
		}
	}
	return "http://" + net.JoinHostPort(hostname, strconv.Itoa(at.Port))
}

// lookUpPatience is how long a name server may take to look up the machine's
// own name.
const lookUpPatience = 2 * time.Second

// ownName is the name or address at which others reach this machine.
func ownName(onlyIPv4 bool) string {
	name, err := os.Hostname()
	if err != nil {
		name = ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookUpPatience)
	defer cancel()
	named, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", name) // none: the name is of no use
	var own []netip.Addr
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p.Addr())
		}
	}
	return reachable(name, named, own, onlyIPv4)
}

// reachable chooses the name or address at which others reach a machine: its
// name, if that also resolves to other addresses than the loopback, or one of
// its own addresses, IPv4 first. On many machines the name resolves to
// 127.0.1.1.
func reachable(name string, named, own []netip.Addr, onlyIPv4 bool) string {
	reaches := func(a netip.Addr) bool { return a.Unmap().Is4() || !onlyIPv4 }
	if slices.ContainsFunc(named, func(a netip.Addr) bool { return !a.Unmap().IsLoopback() && reaches(a) }) {
		return name
	}
	best := "localhost"
	for _, a := range own {
		if !a.IsGlobalUnicast() || !reaches(a) {
			continue
		}
		if a.Is4() {
			return a.String()
		}
		if best == "localhost" {
			best = a.String()
		}
	}
	return best
}
