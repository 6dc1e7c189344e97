package launch

import (
	"slices"
	"strings"
	"testing"
)

func TestSplitCommand(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "",
		"  python3  train.py\t-v\n":       "python3|train.py|-v",
		`sh -c 'echo "$RANK"; exit 3'`:    `sh|-c|echo "$RANK"; exit 3`,
		`a "b c"d\ e '' "x\"y\z"`:         `a|b cd e||x"y\z`,
		`'it'\''s'`:                       `it's`,
		`printf '%s\n' "$HOME" \$\` + "`": `printf|%s\n|$HOME|$` + "`",
	} {
		words, err := SplitCommand(text)
		if err != nil || strings.Join(words, "|") != want {
			t.Errorf("%s: %q, %v; want %s", text, words, err, want)
		}
	}
	for _, text := range []string{`'open`, `"open`, `"open\"`, `end\`} {
		if words, err := SplitCommand(text); err == nil {
			t.Errorf("%s: %q, and no error", text, words)
		}
	}
}

func TestEnvironment(t *testing.T) {
	r := &rank{Worker: 5, Rank: 2, World: 3, Master: "10.0.0.2", Port: 29500}
	env := environment([]string{"HOME=/root", "RANK=9", "OMP_NUM_THREADS=3", "RANK=8"}, []string{"TESTBED_NODES=w0 w1"}, r)
	for _, want := range []string{
		"HOME=/root", "OMP_NUM_THREADS=3", "TESTBED_NODES=w0 w1", "RANK=2", "WORLD_SIZE=3", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "NODE_RANK=2", "GROUP_RANK=2",
		"MASTER_ADDR=10.0.0.2", "MASTER_PORT=29500", "PET_NNODES=3", "PET_NODE_RANK=2", "PET_NPROC_PER_NODE=1", "PET_MASTER_ADDR=10.0.0.2", "PET_MASTER_PORT=29500",
		"JAX_COORDINATOR_ADDRESS=10.0.0.2:29500", "TESTBED_WORKER=5", "GLOO_SOCKET_IFNAME=eth0", "NCCL_SOCKET_IFNAME=eth0", "TP_SOCKET_IFNAME=eth0",
	} {
		name, _, _ := strings.Cut(want, "=")
		of := slices.DeleteFunc(slices.Clone(env), func(v string) bool { return !strings.HasPrefix(v, name+"=") })
		if len(of) != 1 || of[0] != want {
			t.Errorf("%s: %q, want %s", name, of, want)
		}
	}
	env = environment(nil, nil, nil)
	if !slices.Contains(env, "OMP_NUM_THREADS=1") || slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "RANK=") }) {
		t.Errorf("of no worker: %q", env)
	}
}

func TestSplitter(t *testing.T) {
	for name, c := range map[string]struct {
		pieces []string
		want   string
		end    string
	}{
		"lines":             {[]string{"a\nb", "c\n\n", "d"}, "a|bc|", "d"},
		"carriage returns":  {[]string{"10 %\r", "20 %\r30 %", "\r\nend\n"}, "10 %|20 %|30 %|end", ""},
		"no end for long":   {[]string{strings.Repeat("x", longestLine+1)}, strings.Repeat("x", longestLine), "x"},
		"a return at last":  {[]string{"a\r"}, "", "a"},
		"nothing but a new": {[]string{"\n"}, "", ""},
	} {
		var s splitter
		var got []string
		for _, p := range c.pieces {
			for _, line := range s.take([]byte(p)) {
				got = append(got, string(line))
			}
		}
		var end []string
		for _, line := range s.end() {
			end = append(end, string(line))
		}
		if strings.Join(got, "|") != c.want || strings.Join(end, "|") != c.end {
			t.Errorf("%s: %.60q, %.60q", name, got, end)
		}
	}
	if got := prefix("w1", 7, true); got != "\x1b[33mw1:\x1b[0m " {
		t.Errorf("%q", got)
	}
}
