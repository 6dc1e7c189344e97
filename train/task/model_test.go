package task

import (
	"bytes"
	"slices"
	"testing"

	"testbed/policy"
)

func TestTrainedReadsBack(t *testing.T) {
	s := &Spec{Task: CharLM, Model: Model{Layers: 1, Width: 16, Heads: 2, Context: 8}}
	if _, _, err := s.NewTask(3, nil, 0); err == nil {
		t.Fatal("a task without workers")
	}
	task, _, err := s.NewTask(3, []policy.ID{4}, 0)
	if err != nil {
		t.Fatal(err)
	}
	was := s.NewTrained(7, task.Start())
	var file bytes.Buffer
	if err := was.Write(&file); err != nil {
		t.Fatal(err)
	}
	is, err := ReadTrained(file.Bytes())
	if err != nil || is.OuterSteps != 7 || is.Config != was.Config || !slices.Equal(is.Parameters, was.Parameters) {
		t.Fatalf("%v: %+v", err, is)
	}
	if text, err := is.Sample("She ", 20, 1, 5); err != nil || len(text) != 20 {
		t.Errorf("%v: %q", err, text)
	}
	for what, data := range map[string][]byte{
		"nothing": nil, "a text": []byte("She had\n"), "cut off": file.Bytes()[:file.Len()-1], "too long": append(file.Bytes(), 0),
		"no model": []byte("{}\n"),
	} {
		if _, err := ReadTrained(data); err == nil {
			t.Errorf("%s is taken for a model", what)
		}
	}
}

func FuzzReadTrained(f *testing.F) {
	f.Add([]byte("{\"config\":{\"Layers\":1,\"Width\":8,\"Heads\":2,\"Context\":8,\"Batch\":1}}\nabcd"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := ReadTrained(data); err == nil && 4*len(m.Parameters) >= len(data) {
			t.Errorf("%d parameters in %d bytes", len(m.Parameters), len(data))
		}
	})
}
