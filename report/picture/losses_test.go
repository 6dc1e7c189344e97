package picture_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"testbed/policy"
	"testbed/record"
	"testbed/report/picture"
	"testbed/report/runs"
	"testbed/scenarios"
)

// trained are runs of two policies with three seeds. The second is twice as fast.
func trained(t *testing.T, task string) *runs.Record {
	t.Helper()
	s, err := scenarios.Load("charlm_straggler")
	if err != nil {
		t.Fatal(err)
	}
	s.Train.Task = task
	rec := &runs.Record{Scenario: s}
	for _, name := range scenarios.PolicyNames {
		for seed := range uint64(3) {
			sum := record.Summary{Policy: name, World: record.Real, Links: "user", Seed: seed, InitialLoss: new(6.0)}
			every := policy.Time(2e6)
			if name == scenarios.Straggler {
				every = 1e6
			}
			for n := 1; n <= 8; n++ {
				loss := 2 + 2/float64(n) + float64(seed)/100
				sum.Rounds = append(sum.Rounds, record.Round{Round: n, End: every * policy.Time(n), Participants: []policy.ID{0}, Loss: &record.RoundLoss{Validation: &loss}})
			}
			rec.Runs = append(rec.Runs, runs.Run{Summary: sum})
		}
	}
	return rec
}

func losses(t *testing.T, rec *runs.Record, format picture.Format) string {
	t.Helper()
	var b bytes.Buffer
	if err := picture.WriteLosses(&b, rec, format); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestLosses: the figure has labels with units, and a line for each policy and each run.
func TestLosses(t *testing.T) {
	rec := trained(t, "charlm")
	if !picture.Trained(rec) {
		t.Fatal("nothing was trained")
	}
	text := losses(t, rec, picture.SVG)
	var words []string
	lines := 0
	dec := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		switch token := token.(type) {
		case xml.CharData:
			words = append(words, strings.TrimSpace(string(token)))
		case xml.StartElement:
			for _, a := range token.Attr {
				if a.Name.Local == "stroke-opacity" {
					lines++
				}
			}
		}
	}
	all := strings.Join(words, "\n")
	for _, want := range []string{
		"charlm_straggler: validation loss, measured", "scenario time (s)", "validation loss (nats per byte)", "baseline, median of 3 seeds", "straggler, median of 3 seeds",
		"highest final loss of baseline, 2.27",
	} {
		if !strings.Contains(all, want+"\n") {
			t.Errorf("the figure does not say %q:\n%s", want, all)
		}
	}
	if lines != 6 {
		t.Errorf("%d thin lines, want one for each run", lines)
	}
	rec.Target = 3
	if text := losses(t, rec, picture.SVG); !strings.Contains(text, ">loss of 3.00<") {
		t.Errorf("a loss that was asked for is not named:\n%s", text)
	}
	if text := losses(t, trained(t, "program"), picture.SVG); !strings.Contains(text, ">validation loss<") {
		t.Error("a program's losses have a unit")
	}
	for k := range rec.Runs {
		rec.Runs[k].Summary.Rounds = nil
	}
	if err := picture.WriteLosses(io.Discard, rec, picture.SVG); err == nil || picture.Trained(rec) {
		t.Errorf("losses of nothing are drawn: %v", err)
	}
}

// TestLossesAsPDF: the places of objects are where the table says, the stream is as long
// as it says, and the words are in it.
func TestLossesAsPDF(t *testing.T) {
	rec := trained(t, "charlm")
	rec.Scenario.Name = `a (b) \ µ`
	text := losses(t, rec, picture.PDF)
	if !strings.HasPrefix(text, "%PDF-1.4\n") || !strings.HasSuffix(text, "%%EOF\n") {
		t.Fatalf("it is no PDF:\n%.100s", text)
	}
	end := regexp.MustCompile(`startxref\n(\d+)\n`).FindStringSubmatch(text)
	at, err := strconv.Atoi(end[1])
	if err != nil || !strings.HasPrefix(text[at:], "xref\n") {
		t.Fatalf("the table is not at %v", end)
	}
	places := regexp.MustCompile(`(\d{10}) 00000 n`).FindAllStringSubmatch(text[at:], -1)
	for k, place := range places {
		n, _ := strconv.Atoi(place[1])
		if want := fmt.Sprintf("%d 0 obj\n", k+1); !strings.HasPrefix(text[n:], want) {
			t.Errorf("object %d is not at %d: %.20q", k+1, n, text[n:])
		}
	}
	length := regexp.MustCompile(`<< /Length (\d+) >>\nstream\n`).FindStringSubmatchIndex(text)
	n, _ := strconv.Atoi(text[length[2]:length[3]])
	if stream := text[length[1]:]; !strings.HasPrefix(stream[n:], "endstream") || strings.Count(stream[:n], " gs\n") < 6 {
		t.Error("the stream is not as long as it says")
	}
	for _, want := range []string{`(a \(b\) \\ \265: validation loss, measured) Tj`, "(scenario time \\(s\\)) Tj", "0 1 -1 0 14.00 "} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q", want)
		}
	}
	if again := losses(t, rec, picture.PDF); again != text {
		t.Error("it is another one the second time")
	}
}
