package sweep_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/experiment/sweep"
	"testbed/internal/rapidtest"
	"testbed/internal/stats"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
)

// failer is a test or a property.
type failer interface {
	Helper()
	Fatal(...any)
}

// plan is that of a scenario of the library over axes such as "k=1,2".
func plan(t failer, scenario string, axes ...string) *sweep.Plan {
	t.Helper()
	source, err := scenarios.Find(scenario)
	if err != nil {
		t.Fatal(err)
	}
	s, err := source.Parse()
	if err != nil {
		t.Fatal(err)
	}
	var all []sweep.Axis
	for _, text := range axes {
		a, err := sweep.ParseAxis(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	cells, err := sweep.Grid(nil, all)
	if err != nil {
		t.Fatal(err)
	}
	return &sweep.Plan{Scenario: s, Text: source.Text, World: record.Sim, Cells: cells, Seeds: []uint64{1}, Repeats: 1, Policies: scenarios.PolicyNames}
}

func keysOf(t testing.TB, p *sweep.Plan) []string {
	t.Helper()
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	return p.Keys()
}

// TestGridByProperty: a grid has every combination once, and every point of a
// plan a key of its own.
func TestGridByProperty(t *testing.T) {
	fields := []string{"inner_steps", "policy.straggler.k", "target_outer_steps", "workers[*].inner_step_mean"}
	rapidtest.Check(t, func(t *rapid.T) {
		var axes []sweep.Axis
		want := 1
		for _, f := range fields[:rapid.IntRange(0, len(fields)).Draw(t, "fields")] {
			values := rapid.SliceOfNDistinct(rapid.IntRange(1, 99), 1, 5, rapid.ID[int]).Draw(t, "values")
			text := f + "="
			for i, v := range values {
				if i > 0 {
					text += ","
				}
				text += strconv.Itoa(v)
			}
			a, err := sweep.ParseAxis(text)
			if err != nil || len(a.Values) != len(values) || a.Field != f {
				t.Fatalf("%s: %+v, %v", text, a, err)
			}
			axes = append(axes, a)
			want *= len(values)
		}
		cells, err := sweep.Grid(nil, axes)
		if err != nil || len(cells) != want {
			t.Fatalf("%d cells, want %d: %v", len(cells), want, err)
		}
		seen := map[string]bool{}
		for _, c := range cells {
			if len(c) != len(axes) || seen[c.String()] {
				t.Fatalf("cell %s, again or incomplete", c)
			}
			seen[c.String()] = true
		}
		p := plan(t, "homogeneous")
		p.Cells, p.Seeds, p.Repeats = cells, []uint64{3, 4}, rapid.IntRange(1, 3).Draw(t, "repeats")
		keys := map[string]sweep.Point{}
		for i, key := range p.Keys() {
			if old, dup := keys[key]; dup {
				t.Fatalf("%+v and %+v have the same key", old, p.Point(i))
			}
			keys[key] = p.Point(i)
		}
		if len(keys) != want*2*2*p.Repeats {
			t.Fatalf("%d keys, want %d", len(keys), want*4*p.Repeats)
		}
	})
}

func TestKeysTellTextsApart(t *testing.T) {
	a, b := plan(t, "homogeneous"), plan(t, "homogeneous")
	if x, y := a.Keys(), b.Keys(); !slices.Equal(x, y) {
		t.Errorf("the same plan has the keys %v and %v", x, y)
	}
	b.Text = append(slices.Clone(b.Text), '\n')
	if x, y := a.Keys(), b.Keys(); x[0] == y[0] {
		t.Error("another text has the same key")
	}
}

func TestBadAxesAndSeeds(t *testing.T) {
	axis := func(texts ...string) error {
		var axes []sweep.Axis
		for _, text := range texts {
			a, err := sweep.ParseAxis(text)
			if err != nil {
				return err
			}
			axes = append(axes, a)
		}
		_, err := sweep.Grid(nil, axes)
		return err
	}
	seeds := func(text string) error { _, err := sweep.ParseSeeds(text); return err }
	list := func(text string) error { _, err := sweep.ParseList("list", []byte(text)); return err }
	for want, err := range map[string]error{
		"inner_steps has no values: write for example policy.straggler.k=1,2,3":             axis("inner_steps"),
		"inner_steps takes the value 3 twice: keep one":                                     axis("inner_steps=3,4,3"),
		"seed cannot be varied as a field: give the seeds with --seeds":                     axis("seed=1,2"),
		"inner_steps is given twice: keep one":                                              axis("inner_steps=1", "inner_steps=2"),
		"inner_stepz is not a field; did you mean inner_steps?":                             axis("inner_stepz=1"),
		`--seeds: "2..1" is not a range of whole numbers; write for example 1..10`:          seeds("2..1"),
		`--seeds: "x" is not a range of whole numbers; write for example 1..10`:             seeds("x"),
		`--seeds: "0..18446744073709551615" has more than 1000000 seeds; give fewer`:        seeds("0..18446744073709551615"),
		"list: the file contains no assignment; write one JSON object on each line":         list("\n\n"),
		`list:2: the assignment is not a JSON object; write for example {"inner_steps": 4}`: list("{}\n[]"),
		"list:1: inner_steps is given twice: keep one":                                      list(`{"inner_steps":1,"inner_steps":2}`),
		"list:1: inner_steps must be a single number or text":                               list(`{"inner_steps":[1]}`),
		"list:1: text follows the JSON object; write one object on each line":               list(`{"inner_steps":1}{}`),
		"list:1: the assignment is not a JSON object: the object does not end":              list(`{"inner_steps":1`),
		"list:3: inner_stepz is not a field; did you mean inner_steps?":                     list("{}\n\n" + `{"inner_stepz":1}`),
		`list:1: inner_steps: "1.5" is not a whole number; write only digits`:               list(`{"inner_steps":1.5}`),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("error\n  %v\nwant\n  %s", err, want)
		}
	}
}

// TestListAndGrid: each line of a list with each combination of the axes.
func TestListAndGrid(t *testing.T) {
	list, err := sweep.ParseList("list", []byte("{\"inner_steps\": 4}\n{\"real.links.default.loss\": \"1%\", \"inner_steps\": 3}\n"))
	if err != nil {
		t.Fatal(err)
	}
	axis, err := sweep.ParseAxis("policy.straggler.k=1,2")
	if err != nil {
		t.Fatal(err)
	}
	cells, err := sweep.Grid(list, []sweep.Axis{axis})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(cells)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"inner_steps":4,"policy.straggler.k":1},{"inner_steps":4,"policy.straggler.k":2},` +
		`{"real.links.default.loss":"1%","inner_steps":3,"policy.straggler.k":1},{"real.links.default.loss":"1%","inner_steps":3,"policy.straggler.k":2}]`
	if string(text) != want {
		t.Errorf("cells\n%s\nwant\n%s", text, want)
	}
}

// TestPlayKeepsTheOrder with several players, some of them slow, and leaves out
// what is done.
func TestPlayKeepsTheOrder(t *testing.T) {
	p := plan(t, "homogeneous", "inner_steps=1,2,3,4,5")
	p.Seeds = []uint64{1, 2, 3}
	keys := keysOf(t, p)
	done := map[string]sweep.Row{keys[4]: {}, keys[11]: {}}
	var got []string
	err := p.Play(t.Context(), 4, keys, done, func(ctx context.Context, s *scenarios.Scenario, key string, pt sweep.Point) (record.Summary, error) {
		time.Sleep(time.Duration(pt.Seed%2) * time.Millisecond)
		if strconv.Itoa(s.InnerSteps) != pt.Set[0].Value || s.Seed != pt.Seed {
			t.Errorf("point %+v is played with inner_steps %d and seed %d", pt, s.InnerSteps, s.Seed)
		}
		return simulate(ctx, s, key, pt)
	}, func(r sweep.Row) error { got = append(got, r.Key); return nil })
	want := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { _, ok := done[k]; return ok })
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("rows %v, want %v: %v", got, want, err)
	}
}

// TestPlayGivesUp after three failures in a row, and not after two.
func TestPlayGivesUp(t *testing.T) {
	p := plan(t, "homogeneous", "inner_steps=1,2,3,4,5,6,7,8")
	p.Policies = p.Policies[:1]
	keys := keysOf(t, p)
	bad := errors.New("no luck")
	for _, c := range []struct {
		failing    string
		rows, bads int
	}{{"23 56", 4, 4}, {"345", 2, 3}, {"", 8, 0}} {
		played := 0
		err := p.Play(t.Context(), 1, keys, nil, func(ctx context.Context, s *scenarios.Scenario, key string, pt sweep.Point) (record.Summary, error) {
			if strings.Contains(c.failing, pt.Set[0].Value) {
				return record.Summary{}, bad
			}
			return simulate(ctx, s, key, pt)
		}, func(sweep.Row) error { played++; return nil })
		bads := 0
		if err != nil {
			bads = strings.Count(err.Error(), "no luck")
		}
		// Two more may have been under way when the third failed.
		if played < c.rows || played > c.rows+2 || bads != c.bads || (c.bads > 0) != errors.Is(err, bad) {
			t.Errorf("failing %q: %d rows, want %d; error %v", c.failing, played, c.rows, err)
		}
	}
	full := errors.New("disk full")
	if err := p.Play(t.Context(), 2, keys, nil, simulate, func(sweep.Row) error { return full }); !errors.Is(err, full) || strings.Count(err.Error(), "\n") > 0 {
		t.Errorf("error %v, want only that of accept", err)
	}
}

// TestTableIsRepaired: whatever is cut off its end, the table reads back with
// the whole rows, and goes on after them.
func TestTableIsRepaired(t *testing.T) {
	p := plan(t, "homogeneous", "inner_steps=1,2,3")
	keys := keysOf(t, p)
	path := filepath.Join(t.TempDir(), "results.jsonl")
	write := func(done map[string]sweep.Row) []byte {
		t.Helper()
		table, _, err := sweep.OpenTable(path, p)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Play(t.Context(), 1, keys, done, simulate, table.Add), table.Close()); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	whole := write(nil)
	for _, cut := range []int{0, 1, len(whole) / 3, len(whole) - 30, len(whole) - 1, len(whole)} {
		if err := os.WriteFile(path, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		table, done, err := sweep.OpenTable(path, p)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if err := table.Close(); err != nil {
			t.Fatal(err)
		}
		if n := max(0, bytes.Count(whole[:cut], []byte("\n"))); len(done) != n {
			t.Errorf("cut at %d: %d rows, want %d", cut, len(done), n)
		}
		if again := write(done); !bytes.Equal(again, whole) {
			t.Errorf("cut at %d: the table has become\n%s", cut, again)
		}
	}
	head, err := os.ReadFile(filepath.Join(filepath.Dir(path), sweep.HeaderFile))
	if err != nil {
		t.Fatal(err)
	}
	var old bytes.Buffer // as older programs began the table
	if err := json.Compact(&old, head); err != nil {
		t.Fatal(err)
	}
	old.WriteByte('\n')
	for want, text := range map[string]string{
		"line 1: invalid":                 "hello\n",
		"version 9":                       `{"sweep":9}` + "\n",
		"a different version of scenario": `{"sweep":1,"scenario_sha256":"x"}` + "\n",
		"points of scenario other, not":   `{"sweep":1,"scenario":"other","scenario_sha256":"x"}` + "\n",
		"line 3: unexpected end of J":     old.String() + `{"key":"x"}` + "\n{\n",
		"line 2: unexpected end of J":     `{"key":"x"}` + "\n{\n",
		"line 2: the row has no key":      old.String() + "{}\n",
		"line 1: the row has no key":      "{}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := sweep.OpenTable(path, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := os.WriteFile(path, whole, 0o644); err != nil {
		t.Fatal(err)
	}
	for want, text := range map[string]string{
		"is not the table of a sweep":     "hello",
		"version 9":                       `{"sweep":9}`,
		"a different version of scenario": `{"sweep":1,"scenario_sha256":"x"}`,
		"there is no columns.json":        "",
	} {
		file := filepath.Join(filepath.Dir(path), sweep.HeaderFile)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if text == "" {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := sweep.OpenTable(path, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestTableOfOlderPrograms: one that begins with a header has its rows, and goes on behind
// them.
func TestTableOfOlderPrograms(t *testing.T) {
	p := plan(t, "homogeneous", "inner_steps=1,2,3")
	keys := keysOf(t, p)
	path := filepath.Join(t.TempDir(), "results.jsonl")
	head := fmt.Sprintf(`{"sweep":1,"scenario":"homogeneous","scenario_sha256":%q,"columns":{"set":"fields"}}`+"\n", p.Digest())
	if err := os.WriteFile(path, []byte(head+`{"key":"`+keys[0]+`","set":{"inner_steps":1},"seed":42}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	table, done, err := sweep.OpenTable(path, p)
	if err != nil || len(done) != 1 || done[keys[0]].Seed != 42 {
		t.Fatalf("%d rows, %v", len(done), err)
	}
	if err := errors.Join(p.Play(t.Context(), 1, keys, done, simulate, table.Add), table.Close()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(text), head) || strings.Count(string(text), "\n") != 1+len(keys) {
		t.Errorf("the table has become (%v)\n%s", err, text)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(path), sweep.HeaderFile)); err == nil {
		t.Error("a header lies beside the table that has one")
	}
}

// TestEveryLineIsARow: a table has no line of another kind.
func TestEveryLineIsARow(t *testing.T) {
	p := plan(t, "homogeneous", "inner_steps=1,2,3")
	path := filepath.Join(t.TempDir(), "results.jsonl")
	table, _, err := sweep.OpenTable(path, p)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Play(t.Context(), 1, keysOf(t, p), nil, simulate, table.Add), table.Close()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string // of the first row
	for line := range strings.Lines(string(text)) {
		var row map[string]any
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		got := slices.Sorted(maps.Keys(row))
		if names == nil {
			names = got
		}
		if !slices.Equal(got, names) || row["world_name"] != "sim" {
			t.Errorf("a line has %q, the first one has %q", got, names)
		}
	}
	var head struct{ Columns map[string]string }
	if text, err = os.ReadFile(filepath.Join(filepath.Dir(path), sweep.HeaderFile)); err != nil || json.Unmarshal(text, &head) != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if head.Columns[name] == "" {
			t.Errorf("columns.json does not say what %s is", name)
		}
	}
}

var update = flag.Bool("update", false, "write the golden files anew")

// TestText compares what sweeps over one field, over two, and over a list
// print.
func TestText(t *testing.T) {
	list, err := sweep.ParseList("list", []byte("{\"inner_steps\": 4}\n{\"policy.straggler.k\": 5, \"base_latency\": 200}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() *sweep.Plan{
		"one": func() *sweep.Plan { return plan(t, "persistent_straggler", "workers[*].inner_step_jitter=0,100") },
		"two": func() *sweep.Plan {
			return plan(t, "transient_slow", "policy.straggler.k=1,3,9", "workers[*].inner_step_jitter=0,300")
		},
		"incomplete": func() *sweep.Plan { return plan(t, "persistent_straggler", "horizon=15000,30000,90000") },
		"list": func() *sweep.Plan {
			p := plan(t, "homogeneous")
			p.Cells, p.Policies = list, p.Policies[1:]
			return p
		},
	} {
		p := change()
		if name != "list" {
			p.Seeds = []uint64{1, 2, 3, 4, 5}
		}
		keys := keysOf(t, p)
		done := map[string]sweep.Row{}
		if err := p.Play(t.Context(), 1, keys, nil, simulate, func(r sweep.Row) error { done[r.Key] = r; return nil }); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		s := p.Summarise(keys, done)
		s.Dir = "runs/somewhere"
		if err := sweep.WriteText(&b, s); err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n")
		if err := sweep.WriteCSV(&b, p, keys, done); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), b.String()); diff != "" {
			t.Errorf("%s (-want +got), or run with -update:\n%s", file, diff)
		}
	}
}

// TestPairsOfSeeds: cells are held against the first one, and policies against the first
// one, run by run with the same seed, in wall-clock and for as much work.
func TestPairsOfSeeds(t *testing.T) {
	p := plan(t, "noisy_neighbours", "policy.straggler.k=3,0")
	p.Seeds = []uint64{1, 2, 3, 4, 5, 6, 7}
	keys := keysOf(t, p)
	done := map[string]sweep.Row{}
	if err := p.Play(t.Context(), 1, keys, nil, simulate, func(r sweep.Row) error { done[r.Key] = r; return nil }); err != nil {
		t.Fatal(err)
	}
	s := p.Summarise(keys, done)
	effective := func(cell, seed, policy int) float64 {
		r := done[keys[(cell*len(p.Seeds)+seed)*len(p.Policies)+policy]]
		return float64(r.WallClock) / (1 - *r.Lost)
	}
	var cells, policies []float64
	for seed := range p.Seeds {
		cells = append(cells, effective(0, seed, 1)/effective(1, seed, 1))
		policies = append(policies, effective(1, seed, 0)/effective(1, seed, 1))
	}
	if got, want := *s.Cells[1].Against["straggler"].Effective, stats.Estimated(cells); !reflect.DeepEqual(got, want) {
		t.Errorf("k = 0 against k = 3: %+v, want %+v", got, want)
	}
	if got, want := *s.Cells[1].Comparisons[0].Effective, stats.Estimated(policies); !reflect.DeepEqual(got, want) {
		t.Errorf("straggler against baseline: %+v, want %+v", got, want)
	}
	if b := s.Cells[1].Against["baseline"].WallClock; b.Median != 1 || s.Cells[0].Against != nil {
		t.Errorf("the baseline knows no k: %+v; the first cell: %+v", b, s.Cells[0].Against)
	}
}

func FuzzParseList(f *testing.F) {
	f.Add([]byte("{\"inner_steps\": 4}\n\n{\"policy.straggler.k\": 0.5}\n"))
	f.Add([]byte(`{"a":{"b":1}} x`))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := sweep.ParseList("list", text)
		var e *scenarios.Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("error %#v", err)
		}
		for _, a := range list {
			again, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := sweep.ParseList("list", again); err != nil || len(back) != 1 || back[0].String() != a.String() {
				t.Fatalf("%s comes back as %v, %v", again, back, err)
			}
		}
	})
}

// TestReadRefuses what no sweep has left.
func TestReadRefuses(t *testing.T) {
	const summary = `{"scenario":"s","world":"sim","seeds":[1],"repeats":1,"policies":["baseline"],"cells":[{"set":{"inner_steps":1}}]}`
	const head = `{"sweep":1,"scenario":"s"}` + "\n"
	row := func(key, set string) string {
		return `{"key":"` + key + `","set":` + set + `,"seed":1,"repeat":1,"policy":"baseline","world":"sim"}` + "\n"
	}
	for _, c := range []struct{ name, summary, table, want string }{
		{"interrupted at once", "", head, "has no summary.json"},
		{"a run's summary", `{"scenario":"s"}`, head, "the file has no cells"},
		{"an unknown field", strings.Replace(summary, "inner_steps", "inner_stepz", 1), head, "cell 0"},
		{"another scenario's table", summary, `{"sweep":1,"scenario":"x"}` + "\n", "the table has points of scenario x, but summary.json is of scenario s"},
		{"a newer table", summary, `{"sweep":9,"scenario":"s"}` + "\n", "the table has version 9 of the format, but this testbed reads version 1"},
		{"a broken row", summary, head + "{}}\n", "line 2"},
		{"no header at all", summary, row("a", `{"inner_steps":1}`), "there is no columns.json"},
		{"good", summary, head + row("a", `{"inner_steps":1}`) + row("b", `{"inner_steps":2}`) + row("cut", `{"inner_steps":1}`)[:40], ""},
	} {
		dir := t.TempDir()
		if c.summary != "" {
			if err := os.WriteFile(filepath.Join(dir, "summary.json"), []byte(c.summary), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, sweep.TableFile), []byte(c.table), 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := sweep.Read(dir)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.want)
			}
			continue
		}
		if err != nil || len(r.Rows[0]) != 1 || r.Rows[0][0].Key != "a" || r.Cells[0].Set.Value("inner_steps") != "1" {
			t.Errorf("%s: %+v, %v", c.name, r, err)
		}
	}
}

// TestManyPolicies: each but the first has its speed-up over the first, of runs
// with the same seed that were both complete.
func TestManyPolicies(t *testing.T) {
	p := plan(t, "homogeneous", "inner_steps=1,2")
	p.Policies, p.Seeds = []string{"b", "a", "a:k=5"}, []uint64{1, 2, 3}
	keys := keysOf(t, p)
	done := map[string]sweep.Row{}
	for i, key := range keys {
		pt := p.Point(i)
		sum := record.Summary{Complete: pt.Seed != 3 || pt.Policy != "b", WallClock: map[string]policy.Time{"b": 600, "a": 300, "a:k=5": 1200}[pt.Policy]}
		done[key] = p.NewRow(key, pt, sum)
	}
	s := p.Summarise(keys, done)
	for _, c := range s.Cells {
		if a, k := c.SpeedupOf("a"), c.SpeedupOf("a:k=5"); c.Speedup != nil || a.N != 2 || a.Median != 2 || k.N != 2 || k.Median != .5 || c.SpeedupOf("b") != nil {
			t.Errorf("%v: %+v", c.Set, c.Speedups)
		}
	}
	var b strings.Builder
	if err := sweep.WriteText(&b, s); err != nil || !strings.Contains(b.String(), "speed-up of a   speed-up of a:k=5") {
		t.Errorf("%v:\n%s", err, b.String())
	}
}

// TestLearning: the second policy is three times as fast and ends with a loss a
// tenth above, half of the bits with one that is below; a run that is not
// complete does not count.
func TestLearning(t *testing.T) {
	p := plan(t, "charlm_straggler", "real.all_reduce.bits=8,4", "target_outer_steps=2")
	p.Train, p.Seeds = true, []uint64{1, 2, 3, 4}
	keys := keysOf(t, p)
	done := map[string]sweep.Row{}
	for i, key := range keys {
		pt := p.Point(i)
		last, round := 2.0, policy.Time(3e6)
		if pt.Policy == scenarios.Straggler {
			last, round = 2.2, 1e6
		}
		if pt.Set.Value("real.all_reduce.bits") == "4" {
			last -= 0.1
		}
		if pt.Seed == 4 {
			last = 3
		}
		sum := record.Summary{Complete: pt.Seed != 4, Seed: pt.Seed, TokensSeen: new(200), TokensLost: new(50), Rounds: []record.Round{
			{Round: 1, End: round, Participants: []policy.ID{1}, Loss: &record.RoundLoss{Validation: new(4.0)}},
			{Round: 2, End: 2 * round, Participants: []policy.ID{1}, Loss: &record.RoundLoss{Validation: &last}},
		}}
		row := p.NewRow(key, pt, sum)
		text, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		var back sweep.Row
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		back.Set, done[key] = row.Set, back
	}
	if s := p.Summarise(keys, done); s.Target == nil || *s.Target != 2 { // the first policy's in the first cell
		t.Fatalf("target %v", s.Target)
	}
	p.Target = 2.2
	s := p.Summarise(keys, done)
	straggler, four := s.Cells[0].Learning[scenarios.Straggler], s.Cells[1].Learning[scenarios.Baseline]
	if straggler.Sooner.N != 3 || math.Abs(straggler.Sooner.Median-2.85) > 1e-9 || math.Abs(straggler.EqualRounds.Median-0.1) > 1e-9 || straggler.Lost != 50 {
		t.Errorf("straggler: %+v", straggler)
	}
	if math.Abs(four.EqualTokens.Median+0.05) > 1e-9 || four.Final.N != 3 || s.Cells[0].Learning[scenarios.Baseline].Sooner.N != 0 {
		t.Errorf("four bits: %+v", four)
	}
	var text, table strings.Builder
	if err := errors.Join(sweep.WriteText(&text, s), sweep.WriteCSV(&table, p, keys, done)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"all points have target_outer_steps=2",
		"the time of a run ends at a validation loss of 2.20. Seed by seed, each policy is compared with baseline in the same cell, and baseline with its own run in the first cell",
		"8   straggler             2.200         2    2.85×          +10.00 %",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("lacks %q:\n%s", want, text.String())
		}
	}
	if !strings.Contains(table.String(), ",key,loss,time_to_loss_us,tokens_seen,tokens_lost\n") || !strings.Contains(table.String(), ",2.2,2000000,200,50\n") {
		t.Errorf("the table:\n%s", table.String())
	}
	p.Target = 2
	if s := p.Summarise(keys, done); *s.Target != 2 || s.Cells[0].Learning[scenarios.Straggler].Unreached != 3 || s.Cells[1].Learning[scenarios.Baseline].Time.N != 3 {
		t.Errorf("a target of 2: %+v", s.Cells)
	}
	p.Policies = p.Policies[:1]
	text.Reset()
	if err := sweep.WriteText(&text, p.Summarise(keysOf(t, p), nil)); err != nil || strings.Contains(text.String(), "learning") {
		t.Errorf("nothing learnt yet: %v\n%s", err, text.String())
	}
	if err := sweep.WriteText(&text, p.Summarise(keysOf(t, p), done)); err != nil || !strings.Contains(text.String(), "a validation loss of 2.00. Each cell is compared with the first cell, seed by seed\n") {
		t.Errorf("one policy: %v\n%s", err, text.String())
	}
	p = plan(t, "homogeneous")
	p.Train = true
	if err := p.Check(); err == nil || !strings.Contains(err.Error(), "train.task") {
		t.Errorf("nothing to learn: %v", err)
	}
}

// TestPointErrors name the point, with its settings if it has any.
func TestPointErrors(t *testing.T) {
	setting, err := scenarios.NewSetting("inner_steps", "4")
	if err != nil {
		t.Fatal(err)
	}
	for want, set := range map[string]sweep.Assignment{
		"playing seed 3 under baseline: broken":                    nil,
		"playing inner_steps=4 with seed 3 under baseline: broken": {setting},
	} {
		failed := &sweep.PointError{Point: sweep.Point{Set: set, Seed: 3, Policy: "baseline"}, Err: errors.New("broken")}
		if failed.Error() != want {
			t.Errorf("%v, want %s", failed, want)
		}
	}
}
