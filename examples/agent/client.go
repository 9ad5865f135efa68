// The limits of a fleet in Go, by an agent on the same machine.
//
//	doorman agent --listen unix:/run/doorman/agent.sock --server http://doorman:7300
//	go run client.go /run/doorman/agent.sock api pool
//
// Each unit of work takes a token of the rate `api`, and a unit of the gauge `pool` while it runs.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// Resource is what a check takes of one resource.
type Resource struct {
	ID          string  `json:"resource_id"`
	Unit        string  `json:"unit,omitempty"`
	Cost        float64 `json:"cost,omitempty"`
	HoldSeconds float64 `json:"hold_seconds,omitempty"`
}

// Refused says that a resource does not admit the work. Nothing was taken.
type Refused struct {
	Detail     string   `json:"detail"`
	Resources  []string `json:"violated-policies"`
	RetryAfter time.Duration
}

func (refused *Refused) Error() string { return refused.Detail }

// Agent is safe for concurrent use.
type Agent struct{ client http.Client }

func NewAgent(path string) *Agent {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	transport := &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 32}
	return &Agent{http.Client{Transport: transport, Timeout: 5 * time.Second}}
}

// Report states what became of work without a permit: "ok", "overloaded" or "failed". A pause, in
// seconds, is that of an overloaded target's Retry-After.
func (agent *Agent) Report(resource, outcome string, pause float64) error {
	report := map[string]any{"resource_id": resource, "outcome": outcome}
	if pause > 0 {
		report["pause"] = pause
	}
	return agent.post("/v1/check/outcome", map[string]any{"resources": []any{report}}, nil)
}

// Check takes of all resources or of none. Its result gives the units of gauges back, with the
// outcome of the work; without that they end after their HoldSeconds.
func (agent *Agent) Check(resources ...Resource) (release func(outcome string) error, err error) {
	var answer struct {
		Permits []struct {
			Permit string `json:"permit"`
		} `json:"permits"`
	}
	if err := agent.post("/v1/check", map[string]any{"resources": resources}, &answer); err != nil {
		return nil, err
	}
	return func(outcome string) error {
		permits := []map[string]string{}
		for _, it := range answer.Permits {
			permits = append(permits, map[string]string{"permit": it.Permit, "outcome": outcome})
		}
		if len(permits) == 0 {
			return nil
		}
		return agent.post("/v1/check/release", map[string]any{"permits": permits}, nil)
	}, nil
}

func (agent *Agent) post(path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	url := "http://localhost" + path
	response, err := agent.client.Post(url, "application/json", bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	decoder := json.NewDecoder(response.Body)
	switch response.StatusCode {
	case http.StatusOK, http.StatusNoContent:
		if answer == nil {
			return nil
		}
		return decoder.Decode(answer)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		refused := new(Refused)
		if err := decoder.Decode(refused); err != nil {
			return err
		}
		seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
		if err != nil {
			seconds = 1
		}
		refused.RetryAfter = time.Duration(seconds) * time.Second
		return refused
	default:
		return fmt.Errorf("the agent answered %s", response.Status)
	}
}

func main() {
	agent := NewAgent(os.Args[1])
	rate := Resource{ID: os.Args[2]}
	gauge := Resource{ID: os.Args[3], Unit: "gauge", HoldSeconds: 30}
	for number := 0; number < 5; number++ {
		release, err := agent.Check(rate, gauge)
		var refused *Refused
		switch {
		case err == nil:
			time.Sleep(10 * time.Millisecond)
			fmt.Println(number, "done")
			if err := release("ok"); err != nil {
				fmt.Println(number, "not released:", err)
			}
			if err := agent.Report(rate.ID, "ok", 0); err != nil {
				fmt.Println(number, "not reported:", err)
			}
		case errors.As(err, &refused):
			fmt.Println(number, "refused by", refused.Resources)
			time.Sleep(refused.RetryAfter)
		default:
			// Without an agent this program decides itself: here it goes on.
			fmt.Println(number, "no agent:", err)
		}
	}
}
