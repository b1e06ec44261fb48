// Command worker is what cyclonus executes in a pod, with the list of what the pod has to ask in a step.
//
// Upstream's (cmd/worker) starts `agnhost connect` for each entry. For TCP and UDP this one asks itself, in the same way:
// nine pods with 36 processes each, 25 ms of a processor for one, made a machine of two cores so busy that answers came
// too late (decision 0076). As upstream's it gives each a second, and a second try. SCTP is left to agnhost. What is
// read and written is as in upstream's pkg/worker/model.go, without its packages, as nine of these start at once.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

type batch struct {
	Requests []request
}

type request struct {
	Key      string
	Protocol string
	Host     string
	Port     int
}

type result struct {
	Request request
	Output  string
	Error   string
}

const (
	lookupLimit  = 5 * time.Second // agnhost has none: names are not what a case is about
	connectLimit = time.Second
	retries      = 1
)

func main() {
	jobs := flag.String("jobs", "", "JSON-formatted batch of jobs")
	flag.Parse()
	if err := run(*jobs); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(jobs string) error {
	var asked batch
	if err := json.Unmarshal([]byte(jobs), &asked); err != nil {
		return fmt.Errorf("cannot read --jobs: %w", err)
	}
	return json.NewEncoder(os.Stdout).Encode(issue(asked.Requests))
}

// issue asks all at once: what is refused is lost, and waits for its limit.
func issue(requests []request) []result {
	results := make([]result, len(requests))
	var group sync.WaitGroup
	for i, one := range requests {
		group.Go(func() { results[i] = answer(one) })
	}
	group.Wait()
	return results
}

func answer(one request) result {
	err := ask(one)
	for i := 0; i < retries && err != nil; i++ {
		err = ask(one)
	}
	if err != nil {
		return result{Request: one, Error: err.Error()}
	}
	return result{Request: one}
}

func ask(one request) error {
	switch one.Protocol {
	case "TCP", "UDP":
		return connect(one)
	case "SCTP":
		address := net.JoinHostPort(one.Host, strconv.Itoa(one.Port))
		return exec.Command("/agnhost", "connect", address, "--timeout="+connectLimit.String(), "--protocol=sctp").Run()
	default:
		return fmt.Errorf("protocol %s is not supported", one.Protocol)
	}
}

// connect does what `agnhost connect` does, but looks a name up once.
func connect(one request) error {
	lookup, cancel := context.WithTimeout(context.Background(), lookupLimit)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupIPAddr(lookup, one.Host)
	if err != nil {
		return fmt.Errorf("DNS: %w", err)
	}
	address := net.JoinHostPort(addresses[0].String(), strconv.Itoa(one.Port))
	connection, err := net.DialTimeout(strings.ToLower(one.Protocol), address, connectLimit)
	if err != nil {
		return err
	}
	defer connection.Close()
	if one.Protocol == "UDP" {
		return exchange(connection)
	}
	return nil
}

// exchange asks a UDP server for its hostname: without an answer nobody knows that it was reached.
func exchange(connection net.Conn) error {
	if err := connection.SetDeadline(time.Now().Add(connectLimit)); err != nil {
		return err
	}
	if _, err := connection.Write([]byte("hostname\n")); err != nil {
		return err
	}
	count, err := connection.Read(make([]byte, 1024))
	if err == nil && count == 0 {
		return errors.New("no data received from the server")
	}
	return err
}
